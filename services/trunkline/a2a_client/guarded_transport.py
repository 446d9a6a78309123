"""HTTP connections of the client to hosts that a user names. A guard checks each address."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import httpcore2
import httpx2

from trunkline.client.safe_fetch.address_guard import AddressGuard
from trunkline.client.safe_fetch.network import GuardedNetworkBackend

_MAX_CONNECTIONS: Final = 4
# The most specific ones first.
_ERRORS: Final = (
    (httpcore2.ConnectTimeout, httpx2.ConnectTimeout),
    (httpcore2.PoolTimeout, httpx2.PoolTimeout),
    (httpcore2.TimeoutException, httpx2.ReadTimeout),
    (httpcore2.ConnectError, httpx2.ConnectError),
    (httpcore2.NetworkError, httpx2.ReadError),
    (httpcore2.ProtocolError, httpx2.RemoteProtocolError),
    (httpcore2.UnsupportedProtocol, httpx2.UnsupportedProtocol),
)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects only to addresses that a guard accepts, without proxies.

    Requests raise AddressRefusedError for all other addresses.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpcore2.default_ssl_context(),
            max_connections=_MAX_CONNECTIONS,
            max_keepalive_connections=0,
            network_backend=GuardedNetworkBackend(guard),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the response, whose body is not read."""
        url = request.url
        target = httpcore2.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        with _translate_errors():
            response = await self._pool.handle_async_request(
                httpcore2.Request(
                    request.method,
                    target,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_ResponseStream(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _ResponseStream(httpx2.AsyncByteStream):
    """The body of a response."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translate_errors():
            async for piece in self._response.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except tuple(core for core, _ in _ERRORS) as error:
        kind = next(other for core, other in _ERRORS if isinstance(error, core))
        raise kind(str(error)) from error
