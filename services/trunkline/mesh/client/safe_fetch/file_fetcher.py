"""Fetches files from URLs that callers give, from public hosts and within limits."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Final
from urllib.parse import urljoin

import httpcore2

from trunkline.errors import (
    InvalidArgumentError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
)
from trunkline.mesh.client.safe_fetch.address_guard import (
    AddressGuard,
    AddressRefusedError,
    CheckedUrl,
    HostUnresolvedError,
)
from trunkline.mesh.client.safe_fetch.network import (
    CONNECTION_ERRORS,
    GuardedNetworkBackend,
    describe_error,
    to_httpcore_headers,
    to_httpcore_url,
)

LIMIT_BYTES: Final = 1024 * 1024 * 1024
# For a whole file, and for the next piece of it.
TOTAL_TIMEOUT_S: Final = 600.0
_IDLE_TIMEOUT_S: Final = 20.0
_CONNECT_S: Final = 5.0
_CONNECTIONS: Final = 32
_REDIRECTS: Final = 5
_REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final[Mapping[str, str]] = {
    "accept": "*/*",
    # Compressed content may expand to a thousand times its size.
    "accept-encoding": "identity",
    "user-agent": "Trunkline",
}


class FileFetcher:
    """Fetches files by GET. The guard checks the addresses of each connection.

    Redirects are followed if the guard accepts their targets. Proxies of the environment are
    ignored, and no credentials are sent.
    """

    def __init__(self, guard: AddressGuard, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Create a fetcher for files up to `limit_bytes`."""
        self._guard = guard
        self._limit_bytes = limit_bytes
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpcore2.default_ssl_context(),
            max_connections=_CONNECTIONS,
            # Files are fetched rarely, and an idle connection would have to be closed.
            max_keepalive_connections=0,
            network_backend=GuardedNetworkBackend(guard),
        )

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a file, and yield its content in pieces.

        Raises:
            InvalidArgumentError: the URL is refused, or the file is too large.
            PeerRefusedError: the host refuses the request.
            PeerUnavailableError, PeerTimeoutError: the file can't be fetched now.
        """
        until_s = asyncio.get_running_loop().time() + TOTAL_TIMEOUT_S
        async with AsyncExitStack() as stack:
            for _ in range(_REDIRECTS + 1):
                endpoint = self._parse_url(url)
                attempt = AsyncExitStack()
                response = await attempt.enter_async_context(self._get(endpoint))
                target = _get_header(response, b"location")
                if response.status not in _REDIRECT_STATUSES or not target:
                    await stack.enter_async_context(attempt)
                    break
                await attempt.aclose()
                url = urljoin(url, target)
            else:
                raise PeerRefusedError(_peer_name(endpoint), "it redirects too often", "REDIRECTS")
            self._check(response, endpoint)
            async with aclosing(self._read_pieces(response, endpoint, until_s)) as pieces:
                yield pieces

    @asynccontextmanager
    async def _get(self, endpoint: CheckedUrl) -> AsyncIterator[httpcore2.Response]:
        timeouts = {"connect": _CONNECT_S, "read": _IDLE_TIMEOUT_S, "write": _IDLE_TIMEOUT_S}
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    self._pool.stream(
                        "GET",
                        to_httpcore_url(endpoint),
                        headers=to_httpcore_headers(endpoint, _HEADERS),
                        extensions={"timeout": {**timeouts, "pool": _IDLE_TIMEOUT_S}},
                    )
                )
            except HostUnresolvedError as error:
                problem = "its name can't be resolved now"
                raise PeerUnavailableError(_peer_name(endpoint), problem) from error
            except AddressRefusedError as error:
                raise InvalidArgumentError("part.url", str(error)) from None
            except CONNECTION_ERRORS as error:
                raise _build_peer_error(endpoint, error) from error
            yield response

    async def _read_pieces(
        self, response: httpcore2.Response, endpoint: CheckedUrl, until_s: float
    ) -> AsyncGenerator[bytes]:
        remaining_bytes = self._limit_bytes
        loop = asyncio.get_running_loop()
        try:
            async for piece in response.aiter_stream():
                remaining_bytes -= len(piece)
                if remaining_bytes < 0:
                    raise self._size_error()
                if loop.time() > until_s:
                    raise PeerTimeoutError(
                        _peer_name(endpoint), f"it sends for over {TOTAL_TIMEOUT_S:g} s"
                    )
                yield piece
        except CONNECTION_ERRORS as error:
            raise _build_peer_error(endpoint, error) from error

    def _parse_url(self, url: str) -> CheckedUrl:
        try:
            return self._guard.parse_url(url)
        except AddressRefusedError as error:
            raise InvalidArgumentError("part.url", str(error)) from None

    def _check(self, response: httpcore2.Response, endpoint: CheckedUrl) -> None:
        status = response.status
        if status >= 500 or status == 429:
            raise PeerUnavailableError(_peer_name(endpoint), f"it answered {status}")
        if status != 200:
            raise PeerRefusedError(_peer_name(endpoint), f"it answered {status}", f"HTTP_{status}")
        if _get_header(response, b"content-encoding") not in ("", "identity"):
            problem = "it sent compressed content, although the request excludes it"
            raise PeerRefusedError(_peer_name(endpoint), problem, "CONTENT_ENCODING")
        length = _get_header(response, b"content-length")
        if length.isdecimal() and int(length) > self._limit_bytes:
            raise self._size_error()

    def _size_error(self) -> InvalidArgumentError:
        problem = f"leads to a file of over {self._limit_bytes} bytes; send a smaller one"
        return InvalidArgumentError("part.url", problem)


def _build_peer_error(
    endpoint: CheckedUrl, error: Exception
) -> PeerUnavailableError | PeerTimeoutError:
    if isinstance(error, httpcore2.ReadTimeout):
        return PeerTimeoutError(_peer_name(endpoint), "nothing came for too long")
    return PeerUnavailableError(_peer_name(endpoint), describe_error(error))


def _peer_name(endpoint: CheckedUrl) -> str:
    return f"the file's host {endpoint.host}"


def _get_header(response: httpcore2.Response, name: bytes) -> str:
    for key, value in response.headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return ""
