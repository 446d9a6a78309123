"""HTTP connections to checked addresses. Only who posts imports this: it loads an HTTP client."""

import ssl
from collections.abc import Iterable, Mapping
from typing import Final

import httpcore2

from trunkline.client.web.addresses import AddressGuard, Endpoint
from trunkline.client.web.network import FAILURES, GuardedNetwork, fields_of, problem_of, url_of
from trunkline_bridge.webhooks.answers import Answer, NoAnswerError

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
            network_backend=GuardedNetwork(guard),
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
        fields = fields_of(endpoint, headers)
        timeouts = {"timeout": {"connect": _CONNECT_S}}
        try:
            async with self._pool.stream(
                "POST", url_of(endpoint), headers=fields, content=body, extensions=timeouts
            ) as response:
                size_bytes = 0
                async for chunk in response.aiter_stream():
                    size_bytes += len(chunk)
                    if size_bytes > _ANSWER_BYTES:
                        break
                return Answer(response.status, _retry_after(response.headers))
        except FAILURES as error:
            raise NoAnswerError(problem_of(error)) from error


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name.lower() == b"retry-after":
            return value.decode("latin-1")
    return ""
