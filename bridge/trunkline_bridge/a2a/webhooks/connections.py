"""HTTP connections to the receivers of webhooks. Only the first notification imports httpcore2."""

import ssl
from collections.abc import Iterable, Mapping
from typing import Final

import httpcore2

from trunkline.client.safe_fetch.address_guard import AddressGuard, CheckedUrl
from trunkline.client.safe_fetch.network import (
    CONNECTION_ERRORS,
    GuardedNetworkBackend,
    describe_error,
    to_httpcore_headers,
    to_httpcore_url,
)
from trunkline_bridge.a2a.webhooks.attempt import NoResponseError, ReceiverResponse

_CONNECT_TIMEOUT_S: Final = 5.0
_KEEPALIVE_S: Final = 5.0
# A connection can be reused only after the body was read. Larger bodies close it.
_MAX_BODY_BYTES: Final = 64 * 1024


class ReceiverConnections:
    """A pool of connections. The guard checks the address of each new connection.

    Proxies, redirects and cookies are not used. The environment can only change the trusted
    certificates.
    """

    def __init__(
        self, guard: AddressGuard, *, limit: int, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context or httpcore2.default_ssl_context(),
            max_connections=limit,
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=GuardedNetworkBackend(guard),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def post(
        self, endpoint: CheckedUrl, headers: Mapping[str, str], body: bytes
    ) -> ReceiverResponse:
        """Send one POST request and return the response.

        Raises:
            NoResponseError: There was no response.
            AddressRefusedError: The address is not allowed.
        """
        fields = to_httpcore_headers(endpoint, headers)
        timeouts = {"timeout": {"connect": _CONNECT_TIMEOUT_S}}
        try:
            async with self._pool.stream(
                "POST", to_httpcore_url(endpoint), headers=fields, content=body, extensions=timeouts
            ) as response:
                size_bytes = 0
                async for chunk in response.aiter_stream():
                    size_bytes += len(chunk)
                    if size_bytes > _MAX_BODY_BYTES:
                        break
                return ReceiverResponse(response.status, _retry_after(response.headers))
        except CONNECTION_ERRORS as error:
            raise NoResponseError(describe_error(error)) from error


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name.lower() == b"retry-after":
            return value.decode("latin-1")
    return ""
