"""The streams of an MCP session, between the SDK's client and a transport.

It imports mcp: load it lazily.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

import mcp_types
from mcp.client import Transport
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from opentelemetry import trace

from trunkline import telemetry
from trunkline.tools.connection import RequestOutcome, request_outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span

# What the SDK puts before the published name of a span, `{mcp.method.name} {target}`.
_PREFIX: Final = "MCP send "
_CALL: Final = "tools/call"


@asynccontextmanager
async def open_session_streams(transport: Transport) -> AsyncIterator[Any]:
    """Open a transport for the SDK's client; it gets a reader and a writer."""
    async with transport as (reader, writer):
        requests = _OpenRequests()
        yield _Reader(reader, requests), _Writer(writer, requests)


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
        """Note a request, and give its span the published name; that of a call gets the tool."""
        outcome = request_outcome.get()
        if outcome is not None:
            outcome.is_answered = False
            self._outcomes[request.id] = outcome
        span = trace.get_current_span()
        name = getattr(span, "name", "")
        if not name.startswith(_PREFIX):
            return
        span.update_name(name.removeprefix(_PREFIX))
        if request.method != _CALL:
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
    """A stream of the SDK that is closed as the one that it wraps."""

    def __init__(self, stream: Any, requests: _OpenRequests) -> None:  # noqa: ANN401  as the SDK's transports
        self._stream = stream
        self._requests = requests

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(exc_type, exc, traceback)


class _Writer(_Stream):
    """Passes messages on, and notes the requests."""

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, mcp_types.JSONRPCRequest):
            self._requests.on_request(message)
        await self._stream.send(item)


class _Reader(_Stream):
    """Passes messages on, and notes the answers to requests."""

    @property
    def last_context(self) -> Any:  # noqa: ANN401  as the SDK's streams
        """The context in which the last message was sent, where the transport knows it."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item: SessionMessage | Exception = await self._stream.__anext__()
        return self._note(item)

    async def receive(self) -> SessionMessage | Exception:
        return self._note(await self._stream.receive())

    def _note(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(
            item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError
        ):
            self._requests.on_response(item.message)
        return item
