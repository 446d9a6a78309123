"""One HTTP request and its answer, whatever binding of A2A is spoken on it."""

from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from trunkline.errors import PeerUnavailableError
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.http import RequestBody, RequestHeaders, encode_headers, send_json
from trunkline_bridge.edge.in_flight import InFlightRequests
from trunkline_bridge.errors import WireError, to_wire_error
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.streams.event_renderer import EventRenderer  # noqa: TC001
from trunkline_bridge.streams.sse import Heartbeats, send_events
from trunkline_bridge.streams.task_streams import WireEvents


class HttpRequest(NamedTuple):
    """A request, its body read."""

    scope: Scope
    headers: RequestHeaders
    body: bytes


class ErrorResponse(NamedTuple):
    """An error as a binding answers with it."""

    status: int
    body: bytes
    content_type: str = "application/json"


class HttpResponse:
    """The response to one request: what goes on it, and whether it has begun."""

    __slots__ = ("_send", "binding", "has_begun", "headers", "is_over", "note", "renderer")

    def __init__(self, send: Send, binding: "Binding") -> None:
        self._send = send
        self.binding = binding
        self.headers: dict[str, str] = {}
        """Response headers beside those of the content."""
        self.note: object = None
        """What the binding has to remember for its errors: JSON-RPC its request's id."""
        self.renderer: EventRenderer | None = None
        """Set by the binding before it opens a stream."""
        self.has_begun = False
        self.is_over = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message."""
        if not self.has_begun:
            self.has_begun = True
        elif not message.get("more_body", False):
            self.is_over = True
        await self._send(message)

    async def send_json(
        self, body: bytes, *, status: int = 200, content_type: str = "application/json"
    ) -> None:
        """Send a whole answer."""
        headers = {**self.headers, "content-type": content_type}
        await send_json(self.send, body, status=status, headers=headers)

    async def send_nothing(self) -> None:
        """Send an answer without content: its headers say all."""
        start = {
            "type": "http.response.start",
            "status": 204,
            "headers": encode_headers(self.headers),
        }
        await self.send(start)
        await self.send({"type": "http.response.body", "body": b""})


# What a binding answers a call with: nothing when it has sent the answer, or the stream to send.
EventsContext: TypeAlias = AbstractAsyncContextManager[WireEvents]


class Binding(Protocol):
    """A binding of A2A over HTTP."""

    async def respond(self, call: HttpRequest, reply: HttpResponse) -> EventsContext | None:
        """Answer a call on `reply`, or return the stream that is its answer.

        Raises:
            Exception: any; it becomes the answer, by `failure`.
        """
        ...

    def failure(self, error: WireError, reply: HttpResponse) -> ErrorResponse:
        """Return an error as this binding says it before a stream has begun."""
        ...


class HttpHandler:
    """Answers requests over HTTP: bodies within limits, streams as server-sent events.

    An answer is given as long as somebody is there to read it; `cut` ends all with an error that
    says how to go on.
    """

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._answers = InFlightRequests()
        self._beats = Heartbeats(settings.heartbeat_s)

    def __len__(self) -> int:
        """How many answers are under way."""
        return len(self._answers)

    def abort_all(self) -> None:
        """End all answers that are under way, each with an error that says how to go on."""
        self._answers.abort_all()

    async def serve(self, binding: Binding, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        reply = HttpResponse(send, binding)
        headers = RequestHeaders(scope)
        body = RequestBody(
            headers,
            receive,
            limit_bytes=self._settings.body_limit_bytes,
            timeout_s=self._settings.request_timeout_s,
        )
        try:
            content = await body.read()
        except WireError as error:
            await _refuse(body, reply, error)
        except ClientDisconnect:
            return
        else:
            work = self._serve(HttpRequest(scope, headers, content), reply)
            del headers, body, content
            await self._answers.run(scope, receive, work, send_abort=partial(_say_cut, reply))

    async def _serve(self, call: HttpRequest, reply: HttpResponse) -> None:
        try:
            opening = await reply.binding.respond(call, reply)
            # A stream may last for days: what it was asked with is not kept so long.
            del call
            if opening is not None:
                async with opening as events:
                    await self._send_stream(events, reply)
        except Exception as error:
            if reply.has_begun:
                raise
            await _fail(reply, error)

    async def _send_stream(self, events: WireEvents, reply: HttpResponse) -> None:
        if reply.renderer is None:
            raise RuntimeError("a binding sets the renderer of the streams that it opens")
        await send_events(
            reply.send, events, reply.renderer, heartbeats=self._beats, headers=reply.headers
        )


class Served:
    """A binding as an ASGI application."""

    def __init__(self, binding: Binding, exchanges: HttpHandler) -> None:
        self._binding = binding
        self._exchanges = exchanges

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        return self._exchanges.serve(self._binding, scope, receive, send)


async def _refuse(body: RequestBody, reply: HttpResponse, error: WireError) -> None:
    """Answer before the body is read, and close the connection."""
    reply.headers["connection"] = "close"
    await _fail(reply, error, is_open=True)
    # Closed at once, the connection would be reset, and the client might never read this.
    await body.drain()
    await reply.send({"type": "http.response.body", "body": b""})


async def _say_cut(reply: HttpResponse) -> None:
    """Say that this process stops, in the place of the answer or as the last event of a stream."""
    problem = "it is shutting down; ask again, a stream with the Last-Event-ID that came last"
    error = PeerUnavailableError("the bridge", problem)
    if not reply.has_begun:
        await _fail(reply, error)
    elif reply.renderer is not None and not reply.is_over:
        said = to_wire_error(error)
        tracing.record_failure(said.kind.reason)
        last = reply.renderer.render_error(said)
        await reply.send({"type": "http.response.body", "body": last})


async def _fail(reply: HttpResponse, error: Exception, *, is_open: bool = False) -> None:
    said = to_wire_error(error)
    tracing.record_failure(said.kind.reason)
    failure = reply.binding.failure(said, reply)
    headers: Mapping[str, str] = {
        **reply.headers,
        **said.headers(),
        "content-type": failure.content_type,
    }
    await send_json(
        reply.send, failure.body, status=failure.status, headers=headers, is_open=is_open
    )
