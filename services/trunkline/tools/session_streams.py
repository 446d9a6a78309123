"""The streams of an MCP session, between the SDK's client and a transport.

It imports mcp: load it lazily.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

import anyio
import mcp_types
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from opentelemetry import trace

from trunkline.observe import telemetry
from trunkline.tools.connection import RequestOutcome, ServerConnection, request_outcome
from trunkline.tools.listing import CALL_TOOL, LIST_TOOLS, ListFilter
from trunkline.tools.undecodable import (
    UNDECODABLE,
    UndecodableAnswer,
    UndecodableLineError,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span

# The SDK puts this before the name of a span by the conventions, `{mcp.method.name} {target}`.
_PREFIX: Final = "MCP send "


# The beginnings of the texts of the SDK's transport for an answer that it can't decode.
_UNREAD: Final = ("Failed to parse SSE message: ", "Failed to parse JSON response: ")
# A request that stays open as long as the session.
_LISTEN: Final = "subscriptions/listen"
_CANCELLED: Final = "notifications/cancelled"


@asynccontextmanager
async def open_session_streams(
    transport: AbstractAsyncContextManager[Any], connection: ServerConnection, listing: ListFilter
) -> AsyncIterator[Any]:
    """Open a transport for the SDK's client; it gets a reader and a writer."""
    async with transport as (reader, writer):
        exchange = _Exchange(connection, listing)
        yield _Reader(reader, exchange), _Writer(writer, exchange)


class _Exchange:
    """The open requests of a session, and the treatment of their answers."""

    def __init__(self, connection: ServerConnection, listing: ListFilter) -> None:
        self._connection = connection
        self._listing = listing
        self._requests = _OpenRequests()
        # The methods of the open requests, by id.
        self._open: dict[mcp_types.RequestId, str] = {}

    def on_send(self, message: mcp_types.JSONRPCMessage) -> None:
        """Note a message that is sent."""
        match message:
            case mcp_types.JSONRPCRequest():
                self._open[message.id] = message.method
                self._requests.on_request(message)
            case mcp_types.JSONRPCNotification(method=method) if method == _CANCELLED:
                self._close((message.params or {}).get("requestId"))

    def on_receive(self, message: mcp_types.JSONRPCMessage, cost: float) -> None:
        """Note a message that was received, and prepare it for the SDK."""
        if isinstance(message, mcp_types.JSONRPCError):
            if message.id is None:
                # JSON-RPC: the server could not read the id. It answers the only open request.
                message.id = self._only_open_id()
            if message.error.message.startswith(_UNREAD):
                # The SDK's text quotes the answer, and spans have the message of the error.
                message.error = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=UNDECODABLE)
        if not isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            return
        method = self._close(message.id)
        if method is None:
            return
        # Our own requests set the pace of answers.
        self._connection.pace.give_back(cost)
        self._requests.on_response(message)
        if isinstance(message, mcp_types.JSONRPCResponse):
            if method == LIST_TOOLS:
                self._listing.clean_tools(message.result)
            elif method == CALL_TOOL and self._listing.clean_content(message.result):
                problem = "a result has parts that can't be used"
                self._connection.warnings.warn("tool_server.part_left_out", problem)

    def on_undecodable(self, line: UndecodableLineError) -> Sequence[SessionMessage]:
        """Return an error for each open request that an undecodable line answers."""
        connection = self._connection
        connection.warnings.warn("tool_server.stray_line", "it prints what is no MCP message")
        ids = line.answered_ids()
        if ids is None:
            return []
        only = self._only_open_id()
        if not ids and only is not None:
            ids = [only]
        # Spans have the message of the error, so it quotes nothing.
        text = UndecodableAnswer(f"{UNDECODABLE}: {line.shown}")
        connection.transport_error = text
        error = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=UNDECODABLE, data=text)
        answers = [
            mcp_types.JSONRPCError(jsonrpc="2.0", id=each, error=error)
            for each in ids
            if self._close(each) is not None
        ]
        for answer in answers:
            self._requests.on_response(answer)
        return [SessionMessage(answer) for answer in answers]

    def _only_open_id(self) -> mcp_types.RequestId | None:
        ids = [each for each, method in self._open.items() if method != _LISTEN]
        return ids[0] if len(ids) == 1 else None

    def _close(self, request_id: object) -> str | None:
        if not isinstance(request_id, int | str):
            return None
        return self._open.pop(coerce_request_id(request_id), None)


class _OpenRequests:
    """Records which requests were answered, and completes the spans that the SDK makes of them.

    The SDK offers no hook, but it writes a request in the context of its caller while its span is
    current, and ends the span after it has read the answer. A span that ends without an answer
    can't be completed.
    """

    def __init__(self) -> None:
        self._open: dict[object, Span] = {}
        self._outcomes = WeakValueDictionary[object, RequestOutcome]()

    def on_request(self, request: mcp_types.JSONRPCRequest) -> None:
        """Note a request, and name its span. The span of a call also gets the name of the tool."""
        outcome = request_outcome.get()
        if outcome is not None:
            outcome.is_answered = False
            self._outcomes[request.id] = outcome
        span = trace.get_current_span()
        name = getattr(span, "name", "")
        if not name.startswith(_PREFIX):
            return
        span.update_name(name.removeprefix(_PREFIX))
        if request.method != CALL_TOOL:
            return
        tool = str((request.params or {}).get("name", ""))
        span.set_attribute(telemetry.GEN_AI_TOOL_NAME, tool)
        # Calls that were canceled get no answer.
        self._open = {key: each for key, each in self._open.items() if each.is_recording()}
        self._open[request.id] = span

    def on_response(self, response: mcp_types.JSONRPCResponse | mcp_types.JSONRPCError) -> None:
        """Note the answer to a request, and mark the span of a call whose result is an error."""
        if response.id is None:
            return
        request_id = coerce_request_id(response.id)
        outcome = self._outcomes.pop(request_id, None)
        if outcome is not None:
            outcome.is_answered = True
        span = self._open.pop(request_id, None)
        if span is None or isinstance(response, mcp_types.JSONRPCError):
            return
        if response.result.get("isError") is True:
            telemetry.mark_error(span, telemetry.TOOL_ERROR)


class _Stream:
    """A stream for the SDK around a stream of a transport. Closing it closes the inner stream."""

    def __init__(self, stream: Any, exchange: _Exchange) -> None:  # noqa: ANN401  as the SDK's transports
        self._stream = stream
        self._exchange = exchange

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


class _Writer(_Stream):
    """Passes messages on, and notes the requests."""

    async def send(self, item: SessionMessage, /) -> None:
        self._exchange.on_send(item.message)
        await self._stream.send(item)


class _Reader(_Stream):
    """Passes messages on. An undecodable answer becomes an error of its request."""

    def __init__(self, stream: Any, exchange: _Exchange) -> None:  # noqa: ANN401  as the SDK's transports
        super().__init__(stream, exchange)
        self._errors: deque[SessionMessage] = deque()

    @property
    def last_context(self) -> Any:  # noqa: ANN401  as the SDK's streams
        """The context in which the last message was sent, where the transport knows it."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._errors:
            item: SessionMessage | Exception = await self._stream.__anext__()
            if not isinstance(item, UndecodableLineError):
                return self._note(item)
            self._errors += self._exchange.on_undecodable(item)
        return self._errors.popleft()

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _note(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage):
            self._exchange.on_receive(item.message, getattr(self._stream, "last_cost", 1.0))
        return item
