"""Serves HTTP requests of all bindings: limits, responses, errors, shutdown."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from trunkline.a2a_wire.errors import BRIDGE, WireError, to_wire_error
from trunkline.core.settings import Settings
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.http import tracing
from trunkline_bridge.http.in_flight import (
    Connection,
    InFlightRequests,
    find_connection,
    watch_connection,
)
from trunkline_bridge.http.messages import RequestBody, RequestHeaders, ResponseSender
from trunkline_bridge.http.pages import REFUSAL_KEY, method_not_allowed
from trunkline_bridge.http.sse import Heartbeats

_SHUTDOWN = PeerUnavailableError(
    BRIDGE,
    "it is shutting down; try again, for a stream with the last id as Last-Event-ID",
)


class HttpRequest(NamedTuple):
    """A request whose body has been read."""

    scope: Scope
    headers: RequestHeaders
    body: bytes


class Response(Protocol):
    """The response to a request."""

    async def send(self, sender: ResponseSender, heartbeats: Heartbeats) -> None:
        """Send the whole response; streams of events use `heartbeats`.

        Raises:
            Exception: any. If nothing has been sent yet, it becomes the response.
        """
        ...

    def last_event(self, error: WireError) -> bytes | None:
        """Return the bytes that end a started body with an error, or None if this body can't."""
        ...


@dataclass(slots=True)
class BufferedResponse:
    """A response with a whole body. With an empty content type, there are no content headers."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, sender: ResponseSender, _heartbeats: Heartbeats) -> None:
        """Send the whole response."""
        await self.start(sender)
        await sender.finish(self.body)

    async def start(self, sender: ResponseSender) -> None:
        """Send the status and the headers."""
        headers = dict(self.headers)
        if self.content_type:
            headers = {
                "content-type": self.content_type,
                "content-length": str(len(self.body)),
                "cache-control": "no-store",
                **headers,
            }
        await sender.start(self.status, headers)

    def last_event(self, _error: WireError) -> bytes | None:
        """Return None, because only event streams can end with an error."""
        return None


class BindingCall(Protocol):
    """One request to a binding."""

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response.

        Raises:
            Exception: any. `error_response` renders it.
        """
        ...

    def error_response(self, error: WireError) -> BufferedResponse:
        """Return the response to a request that failed before its response began."""
        ...


class Binding(Protocol):
    """A binding of A2A over HTTP."""

    methods: tuple[str, ...]
    """The HTTP methods to serve. If empty, `BindingCall.respond` checks the method."""
    method_hint: str
    """Advice in the error for other methods."""

    def new_call(self) -> BindingCall:
        """Return an object for one request."""
        ...


class HttpHandler:
    """The ASGI application of a binding.

    It serves a request while the client is connected. If the process stops first, an error tells
    the client how to continue.
    """

    def __init__(
        self,
        binding: Binding,
        settings: Settings,
        in_flight: InFlightRequests,
        heartbeats: Heartbeats,
    ) -> None:
        self._binding = binding
        self._settings = settings
        self._in_flight = in_flight
        self._heartbeats = heartbeats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        binding = self._binding
        if binding.methods and scope["method"] not in binding.methods:
            allowed, hint = ", ".join(binding.methods), binding.method_hint
            await method_not_allowed(scope["method"], allowed=allowed, hint=hint)(
                scope, receive, send
            )
            return
        exchange = _Exchange(binding.new_call(), ResponseSender(send), self._heartbeats)
        headers = RequestHeaders(scope)
        body = _request_body(headers, receive, self._settings)
        try:
            request = HttpRequest(scope, headers, await body.read())
        except WireError as error:
            await exchange.reject(body, error)
            return
        except ClientDisconnect:
            return
        known = find_connection(scope)
        watching: AbstractAsyncContextManager[Connection] = (
            watch_connection(receive) if known is None else nullcontext(known)
        )
        async with (
            watching as connection,
            self._in_flight.track(connection, send_abort=exchange.abort),
        ):
            try:
                response = exchange.response = await exchange.call.respond(request)
                # A stream may last for days: release the request.
                del request, headers, body
                await response.send(exchange.sender, self._heartbeats)
            except Exception as error:
                if exchange.sender.has_started:
                    raise
                await exchange.send_error(error)


class RefusingHandler:
    """The ASGI application that responds to all requests of a binding with the scope's refusal."""

    def __init__(self, binding: Binding, settings: Settings, heartbeats: Heartbeats) -> None:
        self._binding = binding
        self._settings = settings
        self._heartbeats = heartbeats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with the refusal."""
        exchange = _Exchange(self._binding.new_call(), ResponseSender(send), self._heartbeats)
        body = _request_body(RequestHeaders(scope), receive, self._settings)
        await exchange.reject(body, scope[REFUSAL_KEY])


def _request_body(headers: RequestHeaders, receive: Receive, settings: Settings) -> RequestBody:
    return RequestBody(
        headers,
        receive,
        limit_bytes=settings.body_limit_bytes,
        timeout_s=settings.request_timeout_s,
    )


class _Exchange:
    """A request and the response to it."""

    __slots__ = ("_heartbeats", "call", "response", "sender")

    def __init__(self, call: BindingCall, sender: ResponseSender, heartbeats: Heartbeats) -> None:
        self.call = call
        self.sender = sender
        self.response: Response | None = None
        """The response, once the binding has returned it."""
        self._heartbeats = heartbeats

    async def send_error(self, error: Exception) -> None:
        """Send an error as the response."""
        await self._error_response(error).send(self.sender, self._heartbeats)

    async def reject(self, body: RequestBody, error: WireError) -> None:
        """Send an error before the body has been read, and close the connection."""
        # The request was not read, so its error is one of HTTP also for JSON-RPC.
        response = self._error_response(error, status=error.kind.http_status)
        response.headers = {"connection": "close", **response.headers}
        await response.start(self.sender)
        await self.sender.write(response.body)
        # Closing with unread data would reset the connection, which often hides the response.
        await body.drain()
        await self.sender.finish()

    async def abort(self, error: Exception | None) -> None:
        """Report an error as the response, or as the last event of a stream.

        None means that this process shuts down.
        """
        error = error or _SHUTDOWN
        if not self.sender.has_started:
            await self.send_error(error)
        elif self.response is not None and not self.sender.is_complete:
            wire_error = to_wire_error(error)
            last_event = self.response.last_event(wire_error)
            if last_event is not None:
                tracing.record_failure(wire_error.kind.reason)
                await self.sender.finish(last_event)

    def _error_response(self, error: Exception, *, status: int = 0) -> BufferedResponse:
        """Return the response to an error. Its status is the binding's, unless one is given."""
        wire_error = to_wire_error(error)
        response = self.call.error_response(wire_error)
        response.status = status or response.status
        tracing.record_error_response(response.status, wire_error.kind.reason)
        response.headers = {**response.headers, **wire_error.headers()}
        return response
