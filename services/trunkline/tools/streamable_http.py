"""Streamable HTTP to a remote server, as a transport of the MCP SDK. It imports mcp: load lazily.

The SDK's transport uses the HTTP client below. The client turns each network error into an error
response of the affected request, so that it harms no other request.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError

from trunkline import telemetry
from trunkline.errors import ToolServerUnavailableError
from trunkline.network import is_this_machine
from trunkline.tools.connection import RequestOutcome, raise_if_cancelled, request_outcome
from trunkline.tools.http_endpoint import HttpEndpoint
from trunkline.tools.server_process import MESSAGE_LIMIT_BYTES

_CONNECT_S = 10.0
_WRITE_S = 30.0
# Timeout of notifications and of the session's DELETE, which no caller waits for.
_NOTIFICATION_S = 3.0
_NOTIFICATION = b'"method":"notifications/'
# More concurrent calls wait for a connection, each within its own timeout.
_CONNECTIONS = 256
_BAD_GATEWAY = 502
_DOWN = {502, 503, 504}

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
        if request.method == "DELETE" or _NOTIFICATION in request.content[:200]:
            timeout = httpx2.Timeout(_NOTIFICATION_S).as_dict()
            request.extensions = {**request.extensions, "timeout": timeout}
        if request.method == "POST" and "traceparent" not in request.headers:
            # As in the message's `_meta`, which gateways and HTTP servers don't read.
            request.headers.update(telemetry.inject())
        try:
            response = await super().send(request, **options)
            return self._inspect(request, await _read(response))
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
        return _observe(response)
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


def _observe(response: httpx2.Response) -> httpx2.Response:
    """Note in the outcome of its call when a response that is a stream breaks off.

    The SDK closes the stream of a request at its answer. A stream whose end it reads had none.
    """
    outcome = request_outcome.get()
    if outcome is not None and isinstance(response.stream, httpx2.AsyncByteStream):
        # The SDK may resume a stream that broke off.
        outcome.is_server_down = False
        response.stream = _ObservedStream(response.stream, outcome)
    return response


class _ObservedStream(httpx2.AsyncByteStream):
    """The content of a response, whose end is noted in the outcome of a call."""

    def __init__(self, stream: httpx2.AsyncByteStream, outcome: RequestOutcome) -> None:
        self._stream = stream
        self._outcome = outcome

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx2.TransportError:
            self._outcome.is_server_down = True
            raise
        self._outcome.is_server_down = True

    async def aclose(self) -> None:
        await self._stream.aclose()


def _answer(request: httpx2.Request, problem: str) -> httpx2.Response:
    """Return an error response for a request that got none."""
    error = JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=problem)
    )
    return httpx2.Response(
        _BAD_GATEWAY,
        headers={"content-type": "application/json"},
        content=error.model_dump_json(by_alias=True, exclude_none=False).encode(),
        request=request,
    )
