"""HTTP as remote agents are called by it: bounded, without redirects, streams event by event."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import httpx2

from trunkline import telemetry
from trunkline.errors import PeerProtocolError, PeerRefusedError, PeerTimeoutError
from trunkline_bridge.client.errors import ConnectionLostError, NotProcessedError, http_status_error
from trunkline_bridge.client.interfaces import is_loopback_url

CONNECT_TIMEOUT_S: Final = 5.0
WRITE_TIMEOUT_S: Final = 30.0
FILE_IDLE_S: Final = 30.0
FILE_PIECE_BYTES: Final = 256 * 1024
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
# Shorter than servers keep idle connections: a message mustn't meet one that is just being closed.
_KEPT_S: Final = 2.0
_CONNECTIONS: Final = 1000
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
EVENT_STREAM: Final = "text/event-stream"


class HttpResponse(NamedTuple):
    """A whole response."""

    status: int
    media_type: str
    """Its media type, without parameters."""
    body: bytes


class StreamItem(NamedTuple):
    """An event of a stream, or all of a response that is none."""

    data: bytes
    id: str = ""
    is_error: bool = False
    """Its `event:` says so."""


@dataclass(frozen=True, slots=True)
class HttpStream:
    """An open response to a request for a stream."""

    status: int
    media_type: str
    items: AsyncIterator[StreamItem] = field(repr=False)

    @property
    def is_event_stream(self) -> bool:
        """It is one; else its only item is the whole body."""
        return self.media_type == EVENT_STREAM


class HttpClient:
    """Requests to one remote agent, each with its credentials. Call `close` in the end."""

    def __init__(
        self,
        peer: str,
        url: str,
        headers: Mapping[str, str],
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`peer` is what errors call it; `headers` are sent with every request, and secret."""
        self.peer = peer
        self._client = httpx2.AsyncClient(
            # Compressed answers could be a thousand times what was sent.
            headers={"accept-encoding": "identity", "user-agent": "Trunkline", **headers},
            limits=httpx2.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_KEPT_S),
            verify=ssl_context or True,
            follow_redirects=False,
            trust_env=not is_loopback_url(url),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> HttpResponse:
        """Send a request and read all of its response, of any status that its body explains.

        Raises:
            NotTakenError, BrokenError, PeerTimeoutError, PeerProtocolError, PeerRefusedError.
        """
        async with self._open(method, url, body, headers, timeout_s) as response:
            return HttpResponse(
                response.status_code, _media_type(response), await self._read(response)
            )

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, body: bytes | None = None, headers: Mapping[str, str]
    ) -> AsyncIterator[HttpStream]:
        """Send a request for a stream; leaving the block ends the stream. It may be silent.

        Raises:
            NotTakenError, BrokenError, PeerTimeoutError, PeerProtocolError, PeerRefusedError.
        """
        headers = {"accept": EVENT_STREAM, **headers}
        async with self._open(method, url, body, headers, None) as response:
            kind = _media_type(response)
            reading = self._events(response) if kind == EVENT_STREAM else self._whole_body(response)
            async with aclosing(reading) as items:
                yield HttpStream(response.status_code, kind, items)

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file in pieces, however large it is.

        Raises:
            NotTakenError, BrokenError, PeerTimeoutError, PeerProtocolError, PeerRefusedError.
        """
        async with self._open("GET", url, None, {}, FILE_IDLE_S) as response:
            if response.status_code != 200:
                problem = f"there is no file (HTTP {response.status_code})"
                raise PeerRefusedError(self.peer, problem, "FILE_NOT_FOUND")
            async with aclosing(self._pieces(response)) as pieces:
                yield pieces

    async def _pieces(self, response: httpx2.Response) -> AsyncGenerator[bytes]:
        with self._translate_errors():
            async for piece in response.aiter_raw(FILE_PIECE_BYTES):
                yield piece

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float | None,
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(
            timeout_s, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S, pool=CONNECT_TIMEOUT_S
        )
        with self._translate_errors():
            async with self._client.stream(
                method,
                url,
                content=body,
                headers={**headers, **telemetry.inject()},
                timeout=timeout,
            ) as response:
                self._check_response(response)
                yield response

    def _check_response(self, response: httpx2.Response) -> None:
        status = response.status_code
        if (error := http_status_error(self.peer, status, response.headers)) is not None:
            raise error
        if 300 <= status < 400:
            problem = f"it redirects (HTTP {status}), which isn't followed; give its new address"
            raise PeerProtocolError(self.peer, problem)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise PeerProtocolError(self.peer, "it compresses, which nobody asked for")

    async def _events(self, response: httpx2.Response) -> AsyncGenerator[StreamItem]:
        with self._translate_errors():
            async for event in httpx2.EventSource(response, MAX_EVENT_BYTES):
                if event.data:
                    yield StreamItem(event.data.encode(), event.id, event.event == "error")

    async def _whole_body(self, response: httpx2.Response) -> AsyncGenerator[StreamItem]:
        with self._translate_errors():
            yield StreamItem(await self._read(response))

    async def _read(self, response: httpx2.Response) -> bytes:
        pieces: list[bytes] = []
        left = MAX_BODY_BYTES
        async for piece in response.aiter_bytes():
            left -= len(piece)
            if left < 0:
                problem = f"its answer is over {MAX_BODY_BYTES // 1024 // 1024} MiB"
                raise PeerProtocolError(self.peer, problem)
            pieces.append(piece)
        return b"".join(pieces)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NotProcessedError(self.peer, "nobody answers there") from error
        except httpx2.TimeoutException as error:
            raise PeerTimeoutError(self.peer, "nothing came for too long") from error
        except httpx2.SSEError as error:
            limit = MAX_EVENT_BYTES // 1024 // 1024
            raise PeerProtocolError(self.peer, f"it sent an event over {limit} MiB") from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise PeerRefusedError(self.peer, "its address is no URL", "INVALID_URL") from error
        except httpx2.RequestError as error:
            raise ConnectionLostError(self.peer, "the connection broke") from error


def _media_type(response: httpx2.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind
