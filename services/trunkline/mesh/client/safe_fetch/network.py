"""HTTP connections to checked addresses. Import it lazily: it loads an HTTP client."""

import ssl
from collections.abc import Iterable, Mapping
from typing import Final

import httpcore2

from trunkline.mesh.client.safe_fetch.address_guard import AddressGuard, CheckedUrl

CONNECTION_ERRORS: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    OSError,
)
"""Errors of a request that gets no answer, or an incomplete one."""


class GuardedNetworkBackend(httpcore2.AsyncNetworkBackend):
    """Connects to a host by addresses that the guard checks for each connection."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(  # noqa: D102  the base class says what it does
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the base class has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        problem: Exception = httpcore2.ConnectError()
        for address in await self._guard.resolve_addresses(host, port):
            try:
                return await self._backend.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem


def to_httpcore_url(endpoint: CheckedUrl) -> httpcore2.URL:
    """Convert a URL to httpcore2's type."""
    return httpcore2.URL(
        scheme=endpoint.scheme.encode("ascii"),
        host=endpoint.host.encode("ascii"),
        port=endpoint.port,
        target=endpoint.target.encode("ascii"),
    )


def to_httpcore_headers(
    endpoint: CheckedUrl, headers: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """Convert a request's headers to httpcore2's type, and add the Host header."""
    return [
        (name.encode("ascii"), value.encode("ascii"))
        for name, value in {"host": endpoint.authority, **headers}.items()
    ]


def describe_error(error: Exception) -> str:
    """Describe a connection error for the caller who gave the URL."""
    # The pool's errors wrap the original error.
    inner = error.args[0] if error.args else None
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return "TLS with it failed"
    if isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout):
        return "it can't be connected to"
    if isinstance(error, httpcore2.ProtocolError):
        return "it closed the connection, or its answer is not HTTP"
    return "the connection broke"
