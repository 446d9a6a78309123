"""HTTP connections to checked addresses. Only who posts imports this: it loads an HTTP client."""

import ssl
from collections.abc import Iterable, Mapping
from typing import Final

import httpcore2

from trunkline_bridge.webhooks.addresses import AddressGuard, Endpoint
from trunkline_bridge.webhooks.posting import Answer, NoAnswerError

_CONNECT_S: Final = 5.0
_KEPT_S: Final = 5.0
# What is read of an answer. Nobody looks at it, but a connection can be used again behind it.
_ANSWER_BYTES: Final = 64 * 1024


class Connections:
    """Connections to receivers, each to addresses that the guard checked when it was made.

    No proxy, no redirect, no cookie, and nothing else that the environment could say: only which
    certificates are trusted.
    """

    def __init__(
        self, guard: AddressGuard, *, limit: int, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context or httpcore2.default_ssl_context(),
            max_connections=limit,
            keepalive_expiry=_KEPT_S,
            network_backend=_GuardedNetwork(guard),
        )

    async def close(self) -> None:
        """Close them all."""
        await self._pool.aclose()

    async def post(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
        """Post once, and return what there is to know of the answer.

        Raises:
            NoAnswerError: there is none.
            AddressRefusedError: it leads where nothing may be posted to.
        """
        url = httpcore2.URL(
            scheme=endpoint.scheme.encode("ascii"),
            host=endpoint.host.encode("ascii"),
            port=endpoint.port,
            target=endpoint.target.encode("ascii"),
        )
        fields = [
            (name.encode("ascii"), value.encode("ascii"))
            for name, value in {"host": endpoint.authority, **headers}.items()
        ]
        timeouts = {"timeout": {"connect": _CONNECT_S}}
        try:
            async with self._pool.stream(
                "POST", url, headers=fields, content=body, extensions=timeouts
            ) as response:
                size_bytes = 0
                async for chunk in response.aiter_stream():
                    size_bytes += len(chunk)
                    if size_bytes > _ANSWER_BYTES:
                        break
                return Answer(response.status, _retry_after(response.headers))
        except _FAILURES as error:
            raise NoAnswerError(_problem(error)) from error


class _GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to a host by addresses that are checked for this very connection."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the base class has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        problem: Exception = httpcore2.ConnectError()
        for address in await self._guard.addresses(host, port):
            try:
                return await self._plain.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name.lower() == b"retry-after":
            return value.decode("latin-1")
    return ""


_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    OSError,
)


def _problem(error: Exception) -> str:
    # The pool's errors hold what they were made of.
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
