"""The HTTP client for remote agents: bounded sizes and times, no redirects, server-sent events."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import httpx2

from trunkline import telemetry
from trunkline.a2a_client.errors import (
    STATUS_ERRORS,
    ConnectionLostError,
    ErrorObject,
    NotProcessedError,
    http_status_error,
)
from trunkline.a2a_client.transport import parse_trace_id
from trunkline.errors import PeerProtocolError, PeerRefusedError, PeerTimeoutError
from trunkline.network import is_this_machine

CONNECT_TIMEOUT_S: Final = 5.0
WRITE_TIMEOUT_S: Final = 30.0
FILE_IDLE_S: Final = 30.0
FILE_PIECE_BYTES: Final = 256 * 1024
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
EVENT_STREAM: Final = "text/event-stream"
# Shorter than the keep-alive of common servers, so that no request uses a connection that the
# server is closing.
_KEEPALIVE_S: Final = 2.0
_MAX_CONNECTIONS: Final = 1000
_NOT_MODIFIED: Final = 304
# Limits on the body of an error response, which only explains the status.
_ERROR_BODY_S: Final = 5.0
_MAX_ERROR_BODY_BYTES: Final = 64 * 1024


class HttpResponse(NamedTuple):
    """A response with its whole body."""

    status: int
    media_type: str
    """Without parameters, in lower case."""
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})
    """Their names are in lower case."""


class StreamItem(NamedTuple):
    """A server-sent event, or the whole body of a response that is not an event stream."""

    data: bytes
    id: str = ""
    is_error: bool = False
    """The event's type is `error`."""


@dataclass(frozen=True, slots=True)
class HttpStream:
    """The open response to a request for a stream."""

    status: int
    media_type: str
    items: AsyncIterator[StreamItem] = field(repr=False)
    trace_id: str = ""
    """From the header `traceresponse`; empty without it."""

    @property
    def is_event_stream(self) -> bool:
        """The items are events; otherwise the only item is the whole body."""
        return self.media_type == EVENT_STREAM


class WireObserver(Protocol):
    """Receives everything that the client sends and receives, with credentials.

    It must not show them.
    """

    def request(self, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Receive a request. `target` is the HTTP method and URL, or the gRPC method."""

    def response(self, status: str, headers: Mapping[str, str]) -> None:
        """Receive the status of a response."""

    def data(self, content: bytes) -> None:
        """Receive the body of a response, or an event of a stream."""


class HttpClient:
    """Sends requests with one remote agent's credentials. Call `close` at the end."""

    def __init__(  # noqa: PLR0913  independent options, each by name
        self,
        peer: str,
        url: str,
        headers: Mapping[str, str],
        *,
        ssl_context: ssl.SSLContext | None = None,
        stream_idle_s: float | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
        query: Mapping[str, str] | None = None,
        observer: WireObserver | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare a client for the peer at `url`.

        Args:
            peer: The peer's name in errors.
            url: An address of the peer; a loopback address is never called through a proxy.
            headers: Sent with every request; they hold credentials.
            ssl_context: Trusted certificates; the system's if None.
            stream_idle_s: Seconds without a byte after which a stream counts as broken, or None
                for no limit.
            max_event_bytes: Limit of one server-sent event.
            max_body_bytes: Limit of the body of a response.
            query: Parameters of every URL; they hold credentials.
            observer: Receives what is sent and received.
            transport: Makes the connections, without a proxy. By default they are made with
                `ssl_context`.
        """
        self.peer = peer
        self._observer = observer
        self._stream_idle_s = stream_idle_s
        self._max_event_bytes = max_event_bytes
        self._max_body_bytes = max_body_bytes
        is_local = is_this_machine(url)
        if ssl_context is None and is_local and url.startswith("https:"):
            # httpx2 reads SSL_CERT_FILE only together with the proxies. OpenSSL reads it always.
            ssl_context = ssl.create_default_context()
        self._client = httpx2.AsyncClient(
            # A compressed body can expand to a thousand times the bytes received.
            headers={"accept-encoding": "identity", "user-agent": "Trunkline", **headers},
            limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=_KEEPALIVE_S),
            params=dict(query or {}),
            verify=ssl_context or True,
            transport=transport,
            follow_redirects=False,
            trust_env=not is_local,
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
        """Send a request and read its whole response.

        Raises:
            NotProcessedError, ConnectionLostError, PeerTimeoutError, PeerProtocolError,
                PeerRefusedError.
        """
        async with self._open(method, url, body, headers, timeout_s) as response:
            return HttpResponse(
                response.status_code,
                _media_type(response),
                await self._read(response),
                dict(response.headers),
            )

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, body: bytes | None = None, headers: Mapping[str, str]
    ) -> AsyncIterator[HttpStream]:
        """Send a request for a stream; leaving the block closes the stream.

        Raises:
            NotProcessedError, ConnectionLostError, PeerTimeoutError, PeerProtocolError,
                PeerRefusedError.
        """
        headers = {"accept": EVENT_STREAM, **headers}
        async with self._open(method, url, body, headers, self._stream_idle_s) as response:
            kind = _media_type(response)
            reading = self._events(response) if kind == EVENT_STREAM else self._whole_body(response)
            async with aclosing(reading) as items:
                trace_id = parse_trace_id(response.headers.get("traceresponse", ""))
                yield HttpStream(response.status_code, kind, items, trace_id)

    @asynccontextmanager
    async def download(
        self, url: str, *, offset: int = 0, etag: str = ""
    ) -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
        """Open a file from `offset` on; yield its ETag and an iterator over its bytes.

        With an offset, `etag` is the ETag of the first part of the download.

        Raises:
            PeerRefusedError: The server has no such file, or it has changed.
            NotProcessedError, ConnectionLostError, PeerTimeoutError, PeerProtocolError.
        """
        headers = {"range": f"bytes={offset}-", "if-range": etag} if offset else {}
        async with self._open("GET", url, None, headers, FILE_IDLE_S) as response:
            if response.status_code != (206 if offset else 200):
                problem = f"there is no file (HTTP {response.status_code})"
                raise PeerRefusedError(self.peer, problem, "FILE_NOT_FOUND")
            async with aclosing(self._pieces(response)) as pieces:
                yield response.headers.get("etag", ""), pieces

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
        headers = {**headers, **telemetry.inject()}
        with self._translate_errors():
            async with self._client.stream(
                method, url, content=body, headers=headers, timeout=timeout
            ) as response:
                if self._observer is not None:
                    request = response.request
                    self._observer.request(
                        f"{method} {request.url}", dict(request.headers), body or b""
                    )
                    self._observer.response(f"HTTP {response.status_code}", dict(response.headers))
                await self._check_response(response)
                yield response

    async def _check_response(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status in STATUS_ERRORS:
            body = await _read_error_body(response)
            self._observe(body)
            error = ErrorObject.from_body(body)
            raise http_status_error(self.peer, status, response.headers, error)
        if 300 <= status < 400 and status != _NOT_MODIFIED:
            problem = f"it redirects (HTTP {status}), which isn't followed; give its new address"
            raise PeerProtocolError(self.peer, problem)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise PeerProtocolError(
                self.peer, "it sends a compressed body, which the client doesn't accept"
            )

    async def _events(self, response: httpx2.Response) -> AsyncGenerator[StreamItem]:
        with self._translate_errors():
            async for event in httpx2.EventSource(response, self._max_event_bytes):
                if event.data:
                    item = StreamItem(event.data.encode(), event.id, event.event == "error")
                    self._observe(item.data)
                    yield item

    async def _whole_body(self, response: httpx2.Response) -> AsyncGenerator[StreamItem]:
        with self._translate_errors():
            yield StreamItem(await self._read(response))

    async def _read(self, response: httpx2.Response) -> bytes:
        pieces: list[bytes] = []
        remaining_bytes = self._max_body_bytes
        async for piece in response.aiter_bytes():
            remaining_bytes -= len(piece)
            if remaining_bytes < 0:
                problem = f"its answer is over {self._max_body_bytes // 1024:,} KiB"
                raise PeerProtocolError(self.peer, problem)
            pieces.append(piece)
        body = b"".join(pieces)
        self._observe(body)
        return body

    def _observe(self, content: bytes) -> None:
        if self._observer is not None:
            self._observer.data(content)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NotProcessedError(self.peer, "nothing answers at its address") from error
        except httpx2.TimeoutException as error:
            raise PeerTimeoutError(self.peer, "nothing came for too long") from error
        except httpx2.SSEError as error:
            limit = self._max_event_bytes // 1024 // 1024
            raise PeerProtocolError(self.peer, f"it sent an event over {limit} MiB") from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise PeerRefusedError(self.peer, "its address is no URL", "INVALID_URL") from error
        except httpx2.RequestError as error:
            raise ConnectionLostError(self.peer, "the connection broke") from error


async def _read_error_body(response: httpx2.Response) -> bytes:
    """Return the body of an error response; empty if it is slow, large or broken."""
    body = b""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_ERROR_BODY_S):
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > _MAX_ERROR_BODY_BYTES:
                    break
            return body
    return b""


def _media_type(response: httpx2.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind
