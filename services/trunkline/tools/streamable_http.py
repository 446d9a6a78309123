"""Streamable HTTP to a server elsewhere, as a transport of the MCP SDK. Imports mcp: load lazily.

The SDK's own transport stands on the HTTP client below, which sees to it that whatever happens on
the network ends in an answer to the request it happened to, and in no more than that.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError

from trunkline.errors import ToolServerUnavailableError
from trunkline.network import is_this_machine
from trunkline.tools.connection import raise_if_cancelled, request_outcome
from trunkline.tools.http_endpoint import HttpEndpoint
from trunkline.tools.server_process import MESSAGE_LIMIT_BYTES

_CONNECT_S = 10.0
_WRITE_S = 30.0
# What we say in parting, or in between, is worth no more of waiting than this.
_ASIDE_S = 3.0
_ASIDE = b'"method":"notifications/'
# Calls beyond that wait for one another, each within its own time.
_CONNECTIONS = 256
_BAD_GATEWAY = 502
_DOWN = {502, 503, 504}

# What goes in and out of the SDK's transport is its affair, and the SDK's types say so.
Streams = Any


@asynccontextmanager
async def open_http_streams(endpoint: HttpEndpoint) -> AsyncIterator[Streams]:
    """Yield the streams of a session with a server elsewhere; leaving ends the session there.

    Raises:
        ToolServerUnavailableError: its entry can't be used.
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
        # An answer came while the session was being left, and the SDK had nobody to give it to.
        # Its task group puts that in the place of why the session was left.
        raise_if_cancelled()


class _Client(httpx2.AsyncClient):
    """Sends the requests of one session; a request that fails is one that was answered so."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        address = endpoint.address
        ca_file = address.ca_file
        super().__init__(
            # Compressed answers could be a thousand times what was sent.
            headers={
                "accept-encoding": "identity",
                "user-agent": "Trunkline",
                **address.headers,
            },
            limits=httpx2.Limits(max_connections=_CONNECTIONS),
            # Whoever waits for an answer says for how long.
            timeout=httpx2.Timeout(None, connect=_CONNECT_S, write=_WRITE_S),
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
            # No proxy must see what stays on this machine.
            trust_env=not is_this_machine(address.host),
        )
        self._endpoint = endpoint

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 as it has them
        """Send a request. What it meets on the network is told by its response."""
        if self._endpoint.has_ended.is_set():
            if request.method == "DELETE":
                # There is no session to end any more; so the SDK is told that it can't be done.
                return httpx2.Response(httpx2.codes.METHOD_NOT_ALLOWED, request=request)
            return self._lost(request, await self._endpoint.describe_end())
        if request.method == "DELETE" or _ASIDE in request.content[:200]:
            aside = httpx2.Timeout(_ASIDE_S).as_dict()
            request.extensions = {**request.extensions, "timeout": aside}
        try:
            response = await super().send(request, **options)
            return self._judged(request, await _read(response))
        except _UnfitError as error:
            self._endpoint.transport_error = f"it answers with {error}"
            return _answer(request, self._endpoint.transport_error)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            problem = self._unreachable(error)
            self._endpoint.mark_broken(problem)
            return self._lost(request, problem)
        except httpx2.TransportError as error:
            note = request_outcome.get()
            if note is not None:
                note.is_server_down = True
            self._endpoint.transport_error = f"the connection broke off ({type(error).__name__})"
            return _answer(request, self._endpoint.transport_error)

    def _judged(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return an answer, and take note of what it says beside what it says to the SDK."""
        status = response.status_code
        if request.method != "POST" or status < httpx2.codes.MULTIPLE_CHOICES:
            return response
        endpoint, note = self._endpoint, request_outcome.get()
        endpoint.transport_error = f"it answers with HTTP {status}"
        is_expired = MCP_SESSION_ID in request.headers and _says_no_session(response)
        is_refused = status == httpx2.codes.UNAUTHORIZED
        if is_expired:
            endpoint.expire()
        elif is_refused:
            endpoint.mark_broken("it does not take the credentials of its entry (HTTP 401)")
        if note is not None:
            note.is_undelivered = is_expired or is_refused
            note.is_server_down = status in _DOWN
            if not _is_message(response):
                note.problem = endpoint.transport_error
        return response

    def _lost(self, request: httpx2.Request, problem: str) -> httpx2.Response:
        note = request_outcome.get()
        if note is not None:
            note.is_undelivered = True
        return _answer(request, problem)

    def _unreachable(self, error: Exception) -> str:
        """Say why there is no connection, without the parts of the URL that may be secret."""
        host = self._endpoint.address.host
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return f"the certificate of {host} is not trusted: {cause.verify_message}"
            cause = cause.__cause__ or cause.__context__
        return f"{host} can't be reached ({type(error).__name__})"


def _says_no_session(response: httpx2.Response) -> bool:
    """Whether the session is not known any more: by the specification that is 404.

    The examples of the SDK in TypeScript, and what was built on them, say 400.
    """
    match response.status_code:
        case httpx2.codes.NOT_FOUND:
            return True
        case httpx2.codes.BAD_REQUEST:
            return _is_message(response) and b"session" in response.content[:500].lower()
    return False


def _is_message(response: httpx2.Response) -> bool:
    """Whether an answer that is no success is one in the protocol's own words."""
    return response.is_closed and b'"jsonrpc"' in response.content


class _UnfitError(Exception):
    """An answer is not one that is read."""


async def _read(response: httpx2.Response) -> httpx2.Response:
    """Read an answer that is one message, as the SDK would, but no more than a message may take."""
    if response.headers.get("content-encoding", "identity") != "identity":
        await response.aclose()
        raise _UnfitError("what is compressed")
    is_message = response.headers.get("content-type", "").lower().startswith("application/json")
    if response.is_redirect or not is_message:
        return response
    content = bytearray()
    try:
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > MESSAGE_LIMIT_BYTES:
                raise _UnfitError(f"more than {MESSAGE_LIMIT_BYTES} bytes")
    finally:
        await response.aclose()
    headers = httpx2.Headers(response.headers)
    headers.pop("transfer-encoding", None)
    return httpx2.Response(
        response.status_code, headers=headers, content=bytes(content), request=response.request
    )


def _answer(request: httpx2.Request, problem: str) -> httpx2.Response:
    """Return what stands for the answer that a request didn't get."""
    error = JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=problem)
    )
    return httpx2.Response(
        _BAD_GATEWAY,
        headers={"content-type": "application/json"},
        content=error.model_dump_json(by_alias=True, exclude_none=False).encode(),
        request=request,
    )
