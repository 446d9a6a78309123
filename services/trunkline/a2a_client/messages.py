"""The message methods of `trunkline.Client`: messages between agents, and rooms."""

import asyncio
import json
import ssl
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

from google.protobuf.json_format import ParseError
from google.protobuf.message import Message as ProtoMessage

from trunkline.a2a_client.errors import (
    ConnectionLostError,
    ErrorObject,
    parse_reason,
    refusal_error,
)
from trunkline.a2a_client.http import HttpClient, HttpResponse, StreamItem
from trunkline.a2a_client.refusals import CREDENTIALS_REFUSALS, mesh_errors
from trunkline.a2a_client.settings import MAX_STREAMED_BYTES, STREAM_IDLE_S
from trunkline.a2a_wire.errors import INTERNAL_ERROR, INVALID_PARAMS, TIMEOUT, UNAVAILABLE
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import LAST_EVENT_ID_HEADER, TIMEOUT_HEADER
from trunkline.client.backoff import RetryWindow
from trunkline.errors import (
    AgentCallError,
    AgentNotFoundError,
    EnvelopeNotFoundError,
    InvalidArgumentError,
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.json_values import message_to_dict, parse_dict
from trunkline.messaging.conversion import build_envelope, read_message
from trunkline.tasks.messages import MeshMessage, Payload, Priority
from trunkline.v1 import envelope_pb2, messaging_service_pb2

_CALL_TIMEOUT_S: Final = 30.0
# The mesh reports the timeout of a request itself.
_TIMEOUT_GRACE_S: Final = 5.0
_AGENTS: Final = "/agents/"
_NOT_FOUND: Final = 404
# The metadata of the error about an agent that does not answer a request.
_AGENT_CALL_FIELDS: Final = frozenset({"agent", "state", "text"})
_MessageT = TypeVar("_MessageT", bound=ProtoMessage)


@dataclass(frozen=True, slots=True)
class MeshRoom:
    """A room and its members."""

    name: str
    members: Sequence[str]
    """Agents, and users as `user:NAME`, sorted."""


class MessageStream:
    """Messages as they are accepted. It reconnects after a broken connection."""

    def __init__(self, messages: AsyncGenerator[tuple[MeshMessage | None, str]]) -> None:
        self._messages = messages
        self.position: str = ""
        """The position to continue after, with `messages(after=…)`; empty before the first."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MeshMessage:
        while True:
            message, position = await anext(self._messages)
            self.position = position or self.position
            if message is not None:
                return message

    async def aclose(self) -> None:
        """Close the connection."""
        await self._messages.aclose()


class MessageMethods:
    """Messages between agents, from outside a Trunkline mesh.

    Methods raise the errors of `Client`'s methods, and subclasses of RequestError for an invalid
    message. A message has its id before it is sent, so that a repeated call after a broken
    connection sends it once.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        ssl_context: ssl.SSLContext | None,
        patience_s: float,
    ) -> None:
        self._mesh_url = url.rstrip("/").partition(_AGENTS)[0]
        self._patience_s = patience_s
        self._messages_http = HttpClient(
            self._mesh_url,
            self._mesh_url,
            headers,
            ssl_context=ssl_context,
            stream_idle_s=STREAM_IDLE_S,
            max_event_bytes=MAX_STREAMED_BYTES,
        )

    async def send(  # noqa: PLR0913  the fields of a message, each by name
        self,
        recipient: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        room: str = "",
        priority: Priority | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_in_s: float | None = None,
        id: str = "",  # noqa: A002  the name of the field
        correlation_id: str = "",
    ) -> MeshMessage:
        """Send a message; it is stored when the call returns, and delivered at least once.

        Args:
            recipient: An agent, `all`, `room:NAME`, or `user:NAME`.
            payload: An object of a declared type, a text, or the fields of the `type`.
            type: The name of the type; by default the type of the payload's model, or
                `user_message` for a text.
            room: The room that the message belongs to.
            priority: `low`, `normal` or `high`.
            metadata: JSON values.
            expires_in_s: The time in seconds after which the message is no longer delivered.
            id: The same id never sends two messages. By default, the message gets a new id.
            correlation_id: The correlation id of an earlier message, whose conversation continues.

        Raises:
            InvalidArgumentError: The payload does not fit its type.
            AgentNotFoundError: There is no such recipient.
            TrunklineError: See the class.
        """
        envelope = build_envelope(
            payload,
            recipient=recipient,
            type=type,
            room=room,
            priority=priority,
            metadata=metadata,
            expires_in_s=expires_in_s,
            id=id or str(uuid.uuid4()),
            correlation_id=correlation_id,
        )
        response = await self._call_mesh("POST", "/messages", message_to_dict(envelope))
        accepted = self._parse(response, messaging_service_pb2.SendEnvelopesResponse)
        if len(accepted.envelopes) != 1:
            raise PeerProtocolError(self._mesh_url, "it did not answer with the message")
        return _to_message(accepted.envelopes[0].envelope)

    async def publish(
        self,
        room: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        id: str = "",  # noqa: A002  the name of the field
    ) -> MeshMessage:
        """Send a message to the members of a room, and to its listeners; as `send` does."""
        return await self.send(f"room:{room}", payload, type=type, id=id)

    async def request(  # noqa: PLR0913  the fields of a message, each by name
        self,
        recipient: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        timeout_s: float = 60.0,
        priority: Priority | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str = "",  # noqa: A002  the name of the field
    ) -> MeshMessage:
        """Send a message to an agent and return its first reply.

        Raises:
            PeerTimeoutError: There is no reply in time. The message stays, and may be answered.
            AgentCallError: There will be no reply. The message was handled without a reply, failed
                for good, expired, or was canceled. A request to a room waits longer: users may
                answer it.
            TrunklineError: As `send`.
        """
        envelope = build_envelope(
            payload,
            recipient=recipient,
            type=type,
            priority=priority,
            metadata=metadata,
            id=id or str(uuid.uuid4()),
        )
        response = await self._call_mesh(
            "POST",
            "/messages:request",
            message_to_dict(envelope),
            headers={TIMEOUT_HEADER: f"{timeout_s:g}"},
            timeout_s=timeout_s + _TIMEOUT_GRACE_S,
        )
        return _to_message(self._parse(response, envelope_pb2.Envelope))

    def messages(
        self,
        *,
        room: str = "",
        correlation_id: str = "",
        type: str = "",  # noqa: A002  the name of the field
        participant: str = "",
        recipient: str = "",
        after: str | None = None,
    ) -> MessageStream:
        """Iterate over messages as they are accepted, without an end.

            async for message in client.messages(room="review"):
                print(message.sender, message.payload)

        Args:
            room: Only messages of this room.
            correlation_id: Only messages of this conversation.
            type: Only messages of this type.
            participant: Only messages from or to this agent or user.
            recipient: Only messages to this recipient.
            after: Begins after a position, `"0"` with the oldest message. By default, begins with
                the next message.

        Raises:
            TrunklineError: See the class; PeerUnavailableError after `patience_s` of tries.
        """
        conditions = _conditions(
            room=room,
            correlationId=correlation_id,
            type=type,
            participant=participant,
            recipient=recipient,
        )
        return MessageStream(self._watch(conditions, after or ("" if after is None else "0")))

    async def history(
        self,
        *,
        room: str = "",
        correlation_id: str = "",
        type: str = "",  # noqa: A002  the name of the field
        participant: str = "",
        recipient: str = "",
        page_size: int = 100,
    ) -> AsyncGenerator[MeshMessage]:
        """Yield stored messages, the newest first. Arguments are the same as for `messages`.

        Raises:
            TrunklineError: See the class.
        """
        conditions = _conditions(
            room=room,
            correlationId=correlation_id,
            type=type,
            participant=participant,
            recipient=recipient,
            pageSize=str(page_size),
        )
        while True:
            response = await self._call_mesh("GET", f"/messages?{urlencode(conditions)}")
            page = self._parse(response, messaging_service_pb2.ListEnvelopesResponse)
            for stored in page.envelopes:
                yield _to_message(stored.envelope)
            if not page.next_page_token:
                return
            conditions["pageToken"] = page.next_page_token

    async def message(self, message_id: str) -> MeshMessage:
        """Return a stored message.

        Raises:
            EnvelopeNotFoundError: There is no message with this id.
            TrunklineError: See the class.
        """
        response = await self._call_mesh("GET", f"/messages/{quote(message_id, safe='')}")
        return _to_message(self._parse(response, envelope_pb2.StoredEnvelope).envelope)

    async def join(self, room: str, member: str = "") -> MeshRoom:
        """Add an agent, or the caller, to a room; return the room.

        Raises:
            TrunklineError: See the class.
        """
        return await self._change_room(room, "join", member)

    async def leave(self, room: str, member: str = "") -> MeshRoom:
        """Remove an agent, or the caller, from a room; return the room.

        Raises:
            TrunklineError: See the class.
        """
        return await self._change_room(room, "leave", member)

    async def rooms(self) -> Sequence[MeshRoom]:
        """Return the rooms that have members, sorted by name.

        Raises:
            TrunklineError: See the class.
        """
        response = await self._call_mesh("GET", "/messages/rooms")
        found = self._parse(response, messaging_service_pb2.ListRoomsResponse)
        return [MeshRoom(room.name, tuple(room.members)) for room in found.rooms]

    async def _change_room(self, room: str, action: str, member: str) -> MeshRoom:
        path = f"/messages/rooms/{quote(room, safe='')}:{action}"
        response = await self._call_mesh("POST", path, {"member": member} if member else {})
        changed = self._parse(response, messaging_service_pb2.Room)
        return MeshRoom(changed.name, tuple(changed.members))

    async def _watch(
        self, conditions: Mapping[str, str], position: str
    ) -> AsyncGenerator[tuple[MeshMessage | None, str]]:
        """Yield messages, each with the position after it if that is known."""
        url = f"{self._mesh_url}/messages:watch?{urlencode(conditions)}"
        window = RetryWindow(self._patience_s)
        while True:
            headers = {LAST_EVENT_ID_HEADER: position} if position else {}
            try:
                with self._message_errors():
                    async with self._messages_http.stream("GET", url, headers=headers) as stream:
                        if not stream.is_event_stream:
                            content = b"".join([item.data async for item in stream.items])
                            self._json(HttpResponse(stream.status, stream.media_type, content))
                            raise PeerProtocolError(self._mesh_url, "it sent no event stream")
                        async for item in stream.items:
                            window.reset()
                            position = item.id or position
                            yield self._read_event(item), item.id
                # The bridge stops.
                problem: TrunklineError = ConnectionLostError(self._mesh_url, "the stream ended")
            except (PeerUnavailableError, PeerTimeoutError) as error:
                problem = error
            await asyncio.sleep(window.next_pause_s(problem))

    def _read_event(self, item: StreamItem) -> MeshMessage | None:
        """Return the message in an event, or None if the event only has a position."""
        value = self._json(HttpResponse(400 if item.is_error else 200, "", item.data))
        if not value:
            return None
        return _to_message(self._parse(value, envelope_pb2.StoredEnvelope).envelope)

    async def _call_mesh(
        self,
        method: str,
        path: str,
        content: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _CALL_TIMEOUT_S,
    ) -> Json:
        """Return the JSON that the mesh answers with. Repeats calls whose connection breaks."""
        body = None if content is None else dumps(content).encode()
        kind = {} if content is None else {"content-type": "application/json"}
        window = RetryWindow(self._patience_s)
        while True:
            try:
                with self._message_errors():
                    response = await self._messages_http.request(
                        method,
                        self._mesh_url + path,
                        body=body,
                        headers={**kind, **(headers or {})},
                        timeout_s=timeout_s,
                    )
                    return self._json(response)
            except PeerUnavailableError as error:
                await asyncio.sleep(window.next_pause_s(error))

    @contextmanager
    def _message_errors(self) -> Iterator[None]:
        """Raise the mesh's refusals as the errors that `Client` promises."""
        try:
            with mesh_errors(self._mesh_url):
                yield
        except PeerRefusedError as error:
            if error.refusal in CREDENTIALS_REFUSALS:
                problem = f"{error.problem}; pass `token`, `key` or `certificate` to the client"
                raise PeerRefusedError(error.peer, problem, error.refusal) from error
            raise

    def _json(self, response: HttpResponse) -> Json:
        """Return the JSON object of a response. An error in it is raised."""
        try:
            value = json.loads(response.body)
        except (ValueError, RecursionError):
            value = None
        if response.status >= 400:
            raise self._refusal(response.status, value)
        if not isinstance(value, dict):
            raise PeerProtocolError(self._mesh_url, f"HTTP {response.status} without JSON")
        return value

    def _refusal(self, status: int, value: object) -> TrunklineError:
        """Return the error for a refusal."""
        error = value.get("error") if isinstance(value, dict) else None
        error = error if isinstance(error, dict) else {}
        details = error.get("details")
        reason = parse_reason(None, details)
        text = str(error.get("message") or f"HTTP {status}")
        parsed = ErrorObject.from_json(error)
        if list(parsed.metadata) == ["agent"] and status == _NOT_FOUND:
            return AgentNotFoundError(parsed.metadata["agent"])
        if "envelopeId" in parsed.metadata:
            return EnvelopeNotFoundError(parsed.metadata["envelopeId"])
        if reason == TIMEOUT.reason:
            # The text is made of both.
            peer = parsed.metadata.get("peer", self._mesh_url)
            return PeerTimeoutError(peer, parsed.metadata.get("problem", text))
        if reason == INTERNAL_ERROR.reason and parsed.metadata.keys() >= _AGENT_CALL_FIELDS:
            fields = {**parsed.metadata, "task_id": parsed.metadata.get("taskId", "")}
            return AgentCallError.from_metadata(fields)
        if reason == INVALID_PARAMS.reason:
            return InvalidArgumentError(*_find_violation(details, text))
        if reason == UNAVAILABLE.reason:
            return PeerUnavailableError(self._mesh_url, text)
        if status >= 500 and not reason:
            return ConnectionLostError(self._mesh_url, f"HTTP {status}")
        return refusal_error(self._mesh_url, text, reason, parsed)

    def _parse(self, value: Json, message_type: type[_MessageT]) -> _MessageT:
        try:
            return parse_dict(value, message_type(), ignore_unknown_fields=True)
        except (ParseError, RecursionError, TypeError, ValueError):
            problem = "its answer does not match the schema of messages"
            raise PeerProtocolError(self._mesh_url, problem) from None


def _conditions(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _to_message(envelope: envelope_pb2.Envelope) -> MeshMessage:
    """Return a message; of a type that differs here, the payload is its JSON."""
    try:
        return read_message(envelope)
    except InvalidArgumentError:
        untyped = envelope_pb2.Envelope()
        untyped.CopyFrom(envelope)
        untyped.type = ""
        return replace(read_message(untyped), type=envelope.type)


def _find_violation(details: object, text: str) -> tuple[str, str]:
    """Return the field of an error and its problem."""
    for entry in details if isinstance(details, list) else ():
        violations = entry.get("fieldViolations") if isinstance(entry, dict) else None
        if isinstance(violations, list) and violations and isinstance(violations[0], dict):
            first = violations[0]
            return str(first.get("field", "")), str(first.get("description", text))
    return "the request", text
