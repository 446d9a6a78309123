"""Streamable HTTP to a remote server, as a transport of the MCP SDK. It imports mcp: load lazily.

The SDK's transport uses the HTTP client below. The client turns each network error into an error
response of the affected request, so that it harms no other request.
"""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from trunkline.core.network import is_this_machine
from trunkline.core.printable import to_plain_line
from trunkline.errors import ToolServerUnavailableError
from trunkline.observe import telemetry
from trunkline.tools.authorization import find_challenge
from trunkline.tools.authorization_errors import AuthorizationError, SignInRequiredError
from trunkline.tools.connection import RequestOutcome, raise_if_cancelled, request_outcome
from trunkline.tools.http_endpoint import HttpEndpoint
from trunkline.tools.server_process import MESSAGE_LIMIT_BYTES
from trunkline.tools.undecodable import UNDECODABLE

_CONNECT_S = 10.0
_WRITE_S = 30.0
# Timeout of notifications and of the session's DELETE, which no caller waits for.
_NOTIFICATION_S = 3.0
_HEAD_BYTES = 200
# As the SDK writes a request.
_REQUEST_ID = re.compile(rb'{"jsonrpc":"2.0","id":(\d+),"method":')
_SHOWN_BYTES = 2_000
_SHOWN_CHARS = 200
# More concurrent calls wait for a connection, each within its own timeout.
_CONNECTIONS = 256
# A server that ends each event stream at once may also ask for the next one at once.
_STREAM_COST = 25
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BAD_GATEWAY = 502
_DOWN = {502, 503, 504}
# The attempts of a request that its server refuses, for the token and for its scopes.
_AUTHORIZED_ATTEMPTS = 2

# The SDK declares its transport's streams as Any.
Streams = Any


@asynccontextmanager
async def open_http_streams(endpoint: HttpEndpoint) -> AsyncIterator[Streams]:
    """Open the streams of a session with a remote server. Leaving the block ends the session.

    Raises:
        ToolServerUnavailableError: the entry's headers or ca_file are unusable.
    """
    try:
        client = _Client(endpoint)
    except (OSError, ValueError) as error:
        problem = f"its headers or its ca_file can't be used ({type(error).__name__})"
        raise ToolServerUnavailableError(endpoint.name, problem) from None
    transport = streamable_http_client(
        endpoint.address.url, http_client=client, max_sse_event_size=MESSAGE_LIMIT_BYTES
    )
    try:
        async with client, transport as streams:
            yield streams
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The SDK raises these if an answer arrives while the session closes. Its task group then
        # replaces the error, or the cancellation, that closed the session.
        raise_if_cancelled()


class _Client(httpx2.AsyncClient):
    """Sends the requests of one session. A failed request gets an error response."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        address = endpoint.address
        ca_file = address.ca_file
        super().__init__(
            # Compressed answers may expand to a thousand times their size.
            headers={
                "accept-encoding": "identity",
                "user-agent": "Trunkline",
                **address.headers,
            },
            limits=httpx2.Limits(max_connections=_CONNECTIONS),
            # Each caller has its own timeout for the answer.
            timeout=httpx2.Timeout(None, connect=_CONNECT_S, write=_WRITE_S),
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
            # A proxy must not see traffic that stays on this machine.
            trust_env=not is_this_machine(address.host),
        )
        self._endpoint = endpoint

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 as it has them
        """Send a request. A network error results in an error response."""
        if self._endpoint.has_ended.is_set():
            if request.method == "DELETE":
                # The session has ended. The SDK accepts 405 for a server without DELETE.
                return httpx2.Response(httpx2.codes.METHOD_NOT_ALLOWED, request=request)
            return self._undelivered(request, await self._endpoint.describe_end())
        if request.method == "GET":
            await self._endpoint.pace.take(_STREAM_COST, 0)
        _prepare(request)
        try:
            response = await self._send_authorized(request, **options)
            return self._inspect(request, await self._read(request, response))
        except AuthorizationError as error:
            return self._unauthorized(request, error)
        except _UndecodableError as error:
            return self._undecodable(request, error)
        except _UnacceptableError as error:
            self._endpoint.transport_error = f"it answers with {error}"
            return _answer(request, self._endpoint.transport_error)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            problem = self._unreachable(error)
            self._endpoint.mark_broken(problem)
            return self._undelivered(request, problem)
        except httpx2.TransportError as error:
            outcome = request_outcome.get()
            if outcome is not None:
                outcome.is_server_down = True
            self._endpoint.transport_error = f"the connection broke off ({type(error).__name__})"
            return _answer(request, self._endpoint.transport_error)

    async def _send_authorized(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401  as `send`
        """Send a request with a token, if its server has OAuth, and again with a new one.

        Raises:
            AuthorizationError: there is no token.
        """
        authorization = self._endpoint.authorization
        if authorization is None:
            return await super().send(request, **options)
        header = await authorization.header()
        for _ in range(_AUTHORIZED_ATTEMPTS):
            if header:
                request.headers["authorization"] = header
            response = await super().send(request, **options)
            challenge = find_challenge(response)
            if challenge is None:
                return response
            await response.aclose()
            header = await authorization.renew(challenge, header)
        if header:
            request.headers["authorization"] = header
        return await super().send(request, **options)

    def _unauthorized(self, request: httpx2.Request, error: AuthorizationError) -> httpx2.Response:
        """Return the response for a request without a token, which its server did not accept.

        A call that needs more rights fails alone. The connection ends otherwise.
        """
        outcome = request_outcome.get()
        is_step_up = isinstance(error, SignInRequiredError) and error.is_step_up
        if is_step_up and outcome is not None:
            outcome.problem = error.problem
            return _answer(request, error.problem)
        if is_step_up and self._endpoint.authorization is not None:
            # The session itself needs them.
            self._endpoint.authorization.needs_sign_in = True
        self._endpoint.mark_broken(error.problem)
        return self._undelivered(request, error.problem)

    async def _read(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Read a single message; limit an event stream, which is read later."""
        response = await _read(response)
        media_type = response.headers.get("content-type", "").lower()
        if media_type.startswith("application/json") and response.is_success:
            return _correlate(request, response)
        if media_type.startswith("text/event-stream") and not response.is_closed:
            stream = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = _EventStream(stream, self._endpoint, request_outcome.get())
        return response

    def _inspect(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return a response, and record what it means for the session and for the call."""
        status = response.status_code
        if request.method != "POST" or status < httpx2.codes.MULTIPLE_CHOICES:
            return response
        endpoint, outcome = self._endpoint, request_outcome.get()
        endpoint.transport_error = f"it answers with HTTP {status}"
        is_expired = MCP_SESSION_ID in request.headers and _says_no_session(response)
        is_refused = status == httpx2.codes.UNAUTHORIZED
        if is_expired:
            endpoint.expire()
        elif is_refused:
            endpoint.mark_broken("it does not accept the credentials of its entry (HTTP 401)")
        if outcome is not None:
            outcome.is_undelivered = is_expired or is_refused
            outcome.is_server_down = status in _DOWN
            if not _is_message(response):
                outcome.problem = endpoint.transport_error
        return response

    def _undecodable(self, request: httpx2.Request, error: "_UndecodableError") -> httpx2.Response:
        problem = self._endpoint.transport_error = f"{UNDECODABLE}: {error}"
        outcome = request_outcome.get()
        if outcome is not None:
            outcome.problem = problem
        # Spans have the message of the error, so it quotes nothing.
        return _answer(request, UNDECODABLE)

    def _undelivered(self, request: httpx2.Request, problem: str) -> httpx2.Response:
        outcome = request_outcome.get()
        if outcome is not None:
            outcome.is_undelivered = True
        return _answer(request, problem)

    def _unreachable(self, error: Exception) -> str:
        """Describe a failed connection without the parts of the URL that may be secret."""
        host = self._endpoint.address.host
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return f"the certificate of {host} is not trusted: {cause.verify_message}"
            cause = cause.__cause__ or cause.__context__
        return f"{host} can't be reached ({type(error).__name__})"


def _prepare(request: httpx2.Request) -> None:
    """Limit the time of a request that nothing waits for, and add the trace context."""
    if request.method == "DELETE" or _is_unawaited(request.content):
        timeout = httpx2.Timeout(_NOTIFICATION_S).as_dict()
        request.extensions = {**request.extensions, "timeout": timeout}
    if request.method == "POST" and "traceparent" not in request.headers:
        # As in the message's `_meta`, which gateways and HTTP servers don't read.
        request.headers.update(telemetry.inject())


def _is_unawaited(content: bytes) -> bool:
    """Return True for a notification, and for an answer to a request of the server."""
    head = content[:_HEAD_BYTES]
    return b'"method":"notifications/' in head or (b'"method":' not in head and bool(head))


def _says_no_session(response: httpx2.Response) -> bool:
    """Return True if the server no longer knows the session.

    The specification says 404. The TypeScript SDK's examples, and servers built on them, send 400.
    """
    match response.status_code:
        case httpx2.codes.NOT_FOUND:
            return True
        case httpx2.codes.BAD_REQUEST:
            return _is_message(response) and b"session" in response.content[:500].lower()
    return False


def _is_message(response: httpx2.Response) -> bool:
    """Return True if an error response has a JSON-RPC body."""
    return response.is_closed and b'"jsonrpc"' in response.content


def _correlate(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a response with a single message, which answers the request.

    If the response to a request has another message, the SDK would wait without end.

    Raises:
        _UndecodableError: the message is not valid, or does not answer the request.
    """
    match = _REQUEST_ID.match(request.content)
    if match is None:
        # Nothing waits for the answer.
        return response
    try:
        message = jsonrpc_message_adapter.validate_json(response.content, by_name=False)
    except ValidationError:
        message = None
    match message:
        case JSONRPCError(id=None):
            # The server could not read the id. With this status, the SDK knows it from the request.
            return httpx2.Response(
                httpx2.codes.BAD_REQUEST,
                headers=response.headers,
                content=response.content,
                request=request,
            )
        case JSONRPCResponse() | JSONRPCError() if str(message.id) == match[1].decode():
            return response
    text = response.content[:_SHOWN_BYTES].decode(errors="replace")
    raise _UndecodableError(to_plain_line(text, _SHOWN_CHARS))


class _EventStream(httpx2.AsyncByteStream):
    """Reads an event stream at the pace of its connection, with events up to the message limit.

    The outcome of the call notes when the stream breaks off. The SDK closes the stream of a request
    at its answer, so a stream that is read to its end had no answer.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        endpoint: HttpEndpoint,
        outcome: RequestOutcome | None,
    ) -> None:
        self._stream = stream
        self._endpoint = endpoint
        self._outcome = outcome
        if outcome is not None:
            # The SDK may resume a stream that broke off.
            outcome.is_server_down = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._read_events():
                yield chunk
        except httpx2.TransportError:
            self._note_break()
            raise
        self._note_break()

    def _note_break(self) -> None:
        if self._outcome is not None:
            self._outcome.is_server_down = True

    async def _read_events(self) -> AsyncIterator[bytes]:
        size, tail = 0, b""
        async for chunk in self._stream:
            # The end of an event may be spread over two chunks.
            text = tail + chunk
            ends = [match.end() for match in _EVENT_END.finditer(text)]
            size = len(text) - ends[-1] if ends else size + len(chunk)
            tail = text[ends[-1] if ends else 0 :][-3:]
            if size > MESSAGE_LIMIT_BYTES:
                raise self._excess()
            await self._endpoint.pace.take(len(ends), len(chunk))
            yield chunk

    def _excess(self) -> httpx2.SSEError:
        problem = f"it answers with more than {MESSAGE_LIMIT_BYTES} bytes"
        self._endpoint.transport_error = problem
        if self._outcome is not None:
            self._outcome.problem = problem
            self._outcome.is_unacceptable = True
        return httpx2.SSEError(problem)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _UndecodableError(Exception):
    """A response has no answer to its request. The text is the beginning of its content."""


class _UnacceptableError(Exception):
    """A response is compressed or too large."""


async def _read(response: httpx2.Response) -> httpx2.Response:
    """Read a response with a single JSON message, up to the size limit of a message.

    Redirects and streams are returned unread.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        await response.aclose()
        raise _UnacceptableError("compressed content")
    is_message = response.headers.get("content-type", "").lower().startswith("application/json")
    if response.is_redirect or not is_message:
        return response
    content = bytearray()
    try:
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > MESSAGE_LIMIT_BYTES:
                raise _UnacceptableError(f"more than {MESSAGE_LIMIT_BYTES} bytes")
    finally:
        await response.aclose()
    headers = httpx2.Headers(response.headers)
    headers.pop("transfer-encoding", None)
    return httpx2.Response(
        response.status_code, headers=headers, content=bytes(content), request=response.request
    )


def _answer(request: httpx2.Request, problem: str) -> httpx2.Response:
    """Return an error response for a request that got no response."""
    error = JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=problem)
    )
    return httpx2.Response(
        _BAD_GATEWAY,
        headers={"content-type": "application/json"},
        content=error.model_dump_json(by_alias=True, exclude_none=False).encode(),
        request=request,
    )
