"""A room over a WebSocket: `/messages/rooms/NAME/socket`.

A participant gets the messages of the room after a position, sends messages, and is a member of the
room for the life of the connection or longer. Frames are JSON objects with one operation each;
docs/messages-outside.md describes them.

Browsers can't set headers, so the credential may be a subprotocol. It is never in the URL, which
servers and proxies log.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from trunkline.a2a_wire.errors import WireError, invalid_params, to_wire_error
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.core.json_values import message_to_dict
from trunkline.errors import TrunklineError
from trunkline.messages.addresses import BROADCAST, room_address
from trunkline.messages.store import EnvelopeFilter
from trunkline_bridge.api.messages.http import parse_envelope, parse_position
from trunkline_bridge.api.messages.operations import EnvelopeUpdates, MessageOperations
from trunkline_bridge.callers.caller import Caller, CallerFactory
from trunkline_bridge.callers.request_rates import RequestRates
from trunkline_bridge.callers.socket_callers import authenticate_socket
from trunkline_bridge.http import tracing
from trunkline_bridge.http.in_flight import Connection, InFlightRequests, find_connection
from trunkline_bridge.http.json_decoder import parse_json_body
from trunkline_bridge.http.messages import rest_error_body
from trunkline_bridge.http.websockets import (
    CLOSE_NORMAL,
    CLOSE_RESTART,
    CLOSE_TRY_AGAIN,
    CLOSE_UNSUPPORTED,
    WRITE_TIMEOUT_S,
    cut_reason,
    find_close_code,
    refuse_socket,
)

logger = logging.getLogger(__name__)

SUBPROTOCOL: Final = "trunkline.room.v1"

_MAX_WINDOW: Final = 10_000
_MAX_TAG_CHARS: Final = 100
_CLOSE_TIMEOUT_S: Final = 5.0

_Membership: TypeAlias = Literal["connection", "lasting", "none"]
_MEMBERSHIPS: Final[Mapping[str, _Membership]] = {
    "connection": "connection",
    "lasting": "lasting",
    "none": "none",
}


class RoomSockets:
    """The ASGI application of the WebSockets of rooms."""

    def __init__(
        self,
        operations: MessageOperations,
        callers: CallerFactory,
        rates: RequestRates,
        in_flight: InFlightRequests,
    ) -> None:
        self._operations = operations
        self._callers = callers
        self._rates = rates
        self._in_flight = in_flight
        # The connections of a member, who leaves with the last of them.
        self._members: Counter[tuple[str, str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        room = scope["path_params"]["room"]
        try:
            caller = await authenticate_socket(self._callers, scope)
            options = _parse_options(scope["query_string"])
        except (WireError, TrunklineError) as error:
            await refuse_socket(to_wire_error(error), scope, receive, send)
            return
        if (await receive())["type"] != "websocket.connect":
            return
        spans = tracing.SocketTrace(scope)
        connection = find_connection(scope) or Connection()
        socket = _Socket(
            self._operations, self._rates, caller, room, options, spans, scope, receive, send
        )
        async with self._in_flight.track(connection, send_abort=socket.abort):
            try:
                async with (
                    self._joined(caller, room, options.membership, spans),
                    self._operations.watch(
                        caller, EnvelopeFilter(room=room), after_position=options.after
                    ) as updates,
                ):
                    await socket.run(updates)
            except (WireError, TrunklineError) as error:
                await socket.refuse(to_wire_error(error))

    @asynccontextmanager
    async def _joined(
        self, caller: Caller, room: str, membership: _Membership, spans: tracing.SocketTrace
    ) -> AsyncIterator[None]:
        """Make the caller a member within the block, or for good."""
        if membership == "none":
            yield
            return
        with spans.operation_span("messages.join"):
            await self._operations.join(caller, room)
        if membership == "lasting":
            yield
            return
        key = (caller.account, caller.name, room)
        self._members[key] += 1
        try:
            yield
        finally:
            self._members[key] -= 1
            if not self._members[key]:
                del self._members[key]
                await self._leave(caller, room, spans)

    async def _leave(self, caller: Caller, room: str, spans: tracing.SocketTrace) -> None:
        # Also when the connection was lost, which cancels this task.
        try:
            with spans.operation_span("messages.leave"):
                await asyncio.shield(self._operations.leave(caller, room))
        except (WireError, TrunklineError) as error:
            logger.warning("room.not_left", extra={"room": room, "problem": str(error)})


class _Options(NamedTuple):
    """The parameters of a connection."""

    after: int | None
    """The position after which messages are sent. With None, only new messages are sent."""
    membership: _Membership
    window: int
    """The number of messages that may be sent before an acknowledgement, or 0 for no limit."""


class _ClosedError(Exception):
    """The connection ends with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Socket:
    """One connection."""

    def __init__(  # noqa: PLR0913  the parts of a connection
        self,
        operations: MessageOperations,
        rates: RequestRates,
        caller: Caller,
        room: str,
        options: _Options,
        spans: tracing.SocketTrace,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._scope = scope
        self._operations = operations
        self._rates = rates
        self._caller = caller
        self._room = room
        self._options = options
        self._spans = spans
        self._receive = receive
        self._send = send
        self._is_accepted = False
        self._is_closed = False
        # The positions of messages that are not acknowledged. Only with a window.
        self._sent: list[int] = []
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def run(self, updates: EnvelopeUpdates) -> None:
        """Accept the connection and serve it to its end."""
        first = await anext(updates)
        is_offered = SUBPROTOCOL in self._scope.get("subprotocols", ())
        subprotocol = SUBPROTOCOL if is_offered else None
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol})
        self._is_accepted = True
        position = str(first[0].position)
        joined = {
            "room": self._room,
            "position": position,
            "membership": self._options.membership,
        }
        try:
            await self._write({"joined": joined})
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write_messages(first, updates))
                await self._read_frames()
                writing.cancel()
        except* _ClosedError as group_error:
            error = group_error.exceptions[0]
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if isinstance(error, _ClosedError):
                await self._close(error.code, error.reason)
        except* (WireError, TrunklineError) as group_error:
            failure: BaseException = group_error
            while isinstance(failure, BaseExceptionGroup):
                failure = failure.exceptions[0]
            if isinstance(failure, Exception):
                await self._close_with(to_wire_error(failure))

    async def refuse(self, error: WireError) -> None:
        """Report an error that came before the connection was accepted."""
        if self._is_accepted:
            await self._close_with(error)
            return

        async def connect() -> MutableMapping[str, Any]:
            return {"type": "websocket.connect"}

        await refuse_socket(error, self._scope, connect, self._send)

    async def abort(self, error: Exception | None) -> None:
        """Close the connection: its credential is refused, or this process stops."""
        if error is not None:
            await self._close_with(to_wire_error(error))
        else:
            await self._close(CLOSE_RESTART, "the bridge stops; connect again after the position")

    async def _write_messages(self, first: Any, updates: EnvelopeUpdates) -> None:  # noqa: ANN401
        await self._write_batch(first)
        async for batch in updates:
            await self._write_batch(batch)
        raise _ClosedError(CLOSE_TRY_AGAIN, "the messages of the room end; connect again")

    async def _write_batch(self, batch: Any) -> None:  # noqa: ANN401  a sequence of responses
        for response in batch:
            for stored in response.envelopes:
                if self._options.window:
                    await self._has_room.wait()
                    self._sent.append(stored.position)
                    if len(self._sent) >= self._options.window:
                        self._has_room.clear()
                await self._write({"message": message_to_dict(stored)})

    async def _read_frames(self) -> None:
        """Serve the client's frames until it disconnects or leaves."""
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                self._is_closed = True
                return
            text = message.get("text")
            if text is None:
                raise _ClosedError(CLOSE_UNSUPPORTED, "frames are JSON texts, no binary data")
            tag: str | None = None
            try:
                frame = await parse_json_body(text.encode("utf-8", "surrogatepass"))
                if not isinstance(frame, dict):
                    raise invalid_params(("frame", "must be a JSON object"))
                tag = _read_tag(frame)
                await self._serve(frame, tag)
            except (WireError, TrunklineError) as error:
                wire_error = to_wire_error(error)
                body = rest_error_body(wire_error)
                await self._write(body if tag is None else {**body, "id": tag})

    async def _serve(self, frame: Json, tag: str | None) -> None:
        """Serve one frame of the client."""
        match frame:
            case {"send": value}:
                self._rates.count_request(self._caller.account)
                envelope = parse_envelope(value, recipient=room_address(self._room))
                if envelope.recipient == BROADCAST:
                    envelope.room = envelope.room or self._room
                with self._spans.operation_span("messages.send", envelope.traceparent):
                    (stored,) = await self._operations.send(self._caller, [envelope])
                answer: Json = {"accepted": message_to_dict(stored)}
                await self._write(answer if tag is None else {**answer, "id": tag})
            case {"ack": str() | int() as position}:
                self._acknowledge(parse_position(str(position), field="ack"))
            case {"ping": str() as text}:
                await self._write({"pong": text[:_MAX_TAG_CHARS]})
            case {"leave": _}:
                with self._spans.operation_span("messages.leave"):
                    await self._operations.leave(self._caller, self._room)
                raise _ClosedError(CLOSE_NORMAL, "left the room")
            case _:
                raise invalid_params(("frame", "must have one of: send, ack, ping, leave"))

    def _acknowledge(self, position: int) -> None:
        """Note that the client has the messages up to a position."""
        self._sent = [sent for sent in self._sent if sent > position]
        if len(self._sent) < self._options.window:
            self._has_room.set()

    async def _write(self, frame: Json) -> None:
        """Write a frame. It waits while the client's buffers are full."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._send({"type": "websocket.send", "text": dumps(frame)})
        except TimeoutError:
            reason = "the client reads too slowly; connect again after the last position"
            raise _ClosedError(CLOSE_TRY_AGAIN, reason) from None
        except OSError:
            self._is_closed = True
            raise _ClosedError(CLOSE_NORMAL, "the client has disconnected") from None

    async def _close_with(self, error: WireError) -> None:
        await self._close(find_close_code(error), error.text)

    async def _close(self, code: int, reason: str) -> None:
        if self._is_closed or not self._is_accepted:
            return
        self._is_closed = True
        message = {"type": "websocket.close", "code": code, "reason": cut_reason(reason)}
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._send(message)
        except TimeoutError:
            # The client does not read, so it can't get the reason.
            if (connection := find_connection(self._scope)) is not None:
                with suppress(TimeoutError):
                    await connection.abort()
        except OSError:
            # The client has disconnected.
            return


def _parse_options(query: bytes) -> _Options:
    """Return the parameters in a query. WireError: one is wrong."""
    values = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    if unknown := sorted(values.keys() - {"after", "membership", "window"}):
        raise invalid_params((unknown[0][:100], "is no parameter; use after, membership, window"))
    membership = _MEMBERSHIPS.get(values.get("membership", "connection"))
    if membership is None:
        raise invalid_params(("membership", f"must be one of: {', '.join(_MEMBERSHIPS)}"))
    window = values.get("window", "0")
    if not window.isdecimal() or int(window[:9]) > _MAX_WINDOW:
        raise invalid_params(("window", f"must be a number up to {_MAX_WINDOW}"))
    after = values.get("after")
    return _Options(
        None if after is None else parse_position(after, field="after"), membership, int(window)
    )


def _read_tag(frame: Json) -> str | None:
    """Return the client's own id of a frame, which the answer repeats."""
    tag = frame.get("id")
    if tag is not None and (not isinstance(tag, str) or len(tag) > _MAX_TAG_CHARS):
        raise invalid_params(("id", f"must be a text of up to {_MAX_TAG_CHARS} characters"))
    return tag
