"""Limits on uvicorn's connections: their number, request heads, and unread responses.

A request head is the request line and the headers. uvicorn has none of these limits: a client that
sends a byte a second, sends an endless head or does not read could occupy a connection and its
memory forever.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from trunkline.a2a_wire.errors import (
    INVALID_REQUEST,
    OVERLOADED,
    UNAVAILABLE,
    ErrorKind,
    WireError,
)
from trunkline.a2a_wire.json_values import dumps
from trunkline.core.settings import DEFAULTS
from trunkline_bridge.http.client_certificates import certificate_name
from trunkline_bridge.http.in_flight import CONNECTION_KEY, Connection
from trunkline_bridge.http.messages import (
    REQUEST_TIMEOUT,
    rest_error_body,
    set_host,
    split_absolute_target,
)

HEAD_TOO_LARGE = ErrorKind(INVALID_REQUEST.rpc_code, INVALID_REQUEST.reason, 431)
TOO_MANY_CONNECTIONS = ErrorKind(
    OVERLOADED.rpc_code, OVERLOADED.reason, UNAVAILABLE.http_status, code_pb2.RESOURCE_EXHAUSTED
)

KEEP_ALIVE_S = 75
"""The time for which an idle connection stays open after a request. It is longer than clients and
load balancers reuse connections (httpx 5 s, Java 30 s, AWS 60 s): a server that closes first, as a
client sends its next request, makes that request fail."""

MAX_HEAD_BYTES = 64 * 1024
"""Limit of a request head. It is parsed in pieces of this size, so a head that ends in its second
piece passes."""

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}
_NOT_HTTP = "this is not a valid HTTP/1.1 request"
_TOO_LARGE = f"the request line and headers are longer than {MAX_HEAD_BYTES} bytes; shorten them"
# Time to discard data after an error response. A reset at once often hides the response.
_LINGER_S = 2.0
_UPGRADE = re.compile(rb"\r\nupgrade:(?![ \t]*websocket[ \t]*\r\n)", re.IGNORECASE)
# A client has to read so much of a whole response in `ConnectionLimits.response_timeout_s`.
_MIN_READ_BYTES = 32 * 1024
# Limit on pipelined requests. Browsers and SDKs do not pipeline.
_MAX_PIPELINED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on connections."""

    max_connections: int = DEFAULTS.connection_limit
    """Limit of open connections. Further ones get a 503 response and are closed."""
    request_timeout_s: float = DEFAULTS.request_timeout_s
    """Limit of the time for a request head, and of the idle time before the first, in seconds."""
    response_timeout_s: float = 30.0
    """The seconds in which a client reads 32 KiB of a whole response, or is disconnected. Streams
    wait for their readers: they hold no more than a small buffer."""


def limit_connections(protocol: Any, limits: ConnectionLimits) -> Any:  # noqa: ANN401, C901  uvicorn has several, and no type for them
    """Return a subclass of a uvicorn protocol with limits.

    It also stops the requests of a connection when that is lost.
    """

    class LimitedProtocol(protocol):  # type: ignore[misc]
        # With slots instead of five more attributes, Python can share the keys of the connections'
        # dictionaries, which saves 1.5 KB a connection.
        __slots__ = (
            "_head_bytes",
            "_is_rejected",
            "_served",
            "_unread_bytes",
            "_unread_since",
            "_waits_since",
            "connection",
        )

        # uvicorn's attributes, which mypy does not see and takes for missing slots.
        app_state: dict[str, Any]
        timeout_keep_alive_task: asyncio.TimerHandle | None
        url: bytes
        headers: list[tuple[bytes, bytes]]
        # Requests that wait for an earlier one, the next at the end. The h11 protocol has no such
        # limit.
        pipeline: Any = ()
        _unread_bytes: int
        _unread_since: float

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            certificate = transport.get_extra_info("peercert")
            self.connection = Connection(
                transport.abort, certificate_name=certificate_name(certificate)
            )
            # Each request gets a copy of this in its scope.
            self.app_state = {**self.app_state, CONNECTION_KEY: self.connection}  # type: ignore[misc]
            self._served: Any = None
            self._head_bytes = 0
            self._is_rejected = False
            self._waits_since = self._unread_since = self.loop.time()
            self._unread_bytes = 0
            if len(self.connections) > limits.max_connections:
                text = "there are too many connections; try again in a second"
                self._send_error(WireError(TOO_MANY_CONNECTIONS, text, retry_after_s="1"))
                transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            # uvicorn marks only its newest request; with pipelining an older one is being served.
            if self._served is not None and not self._served.response_complete:
                self._served.disconnected = True
            self.connection.stop_requests()

        def data_received(self, data: bytes) -> None:
            # A head of any length may arrive in one read, so it is parsed in pieces.
            for start in range(0, len(data), MAX_HEAD_BYTES):
                if self._is_rejected or self.transport.is_closing():
                    return
                piece = data[start : start + MAX_HEAD_BYTES] if len(data) > MAX_HEAD_BYTES else data
                if self._is_between_requests():
                    piece = _remove_upgrade(piece)
                super().data_received(piece)
                if self.transport.get_protocol() is not self:
                    # A WebSocket has taken the connection.
                    return
                if not self._is_between_requests():
                    self._head_bytes = 0
                    continue
                self._head_bytes += len(piece)
                if self._head_bytes > MAX_HEAD_BYTES:
                    self._reject(WireError(HEAD_TOO_LARGE, _TOO_LARGE))

        def on_header(self, name: bytes, value: bytes) -> None:
            # httptools keeps the white space at the end (RFC 9110, section 5.5).
            super().on_header(name, value.rstrip(b" \t"))

        def on_headers_complete(self) -> None:
            # One piece may contain thousands of requests.
            if len(self.pipeline) >= _MAX_PIPELINED:
                raise ValueError("too many pipelined requests")
            if self.parser.should_upgrade():
                if not self._should_upgrade() or self.parser.get_method() != b"GET":
                    # CONNECT, or an Upgrade header split across pieces: its body would be lost.
                    raise ValueError("no other protocol than WebSocket is served")
                if not self._is_between_requests():
                    raise ValueError("a WebSocket can't begin behind another request")
            # httptools drops the authority of an absolute target.
            if self.url[:1] != b"/" and (absolute := split_absolute_target(self.url)):
                authority, self.url = absolute  # type: ignore[misc]
                set_host(self.headers, authority)
            waiting = len(self.pipeline)
            super().on_headers_complete()
            if len(self.pipeline) == waiting:
                self._served = self.cycle

        def on_response_complete(self) -> None:
            self._waits_since = self.loop.time()
            if self.pipeline:
                self._served, _ = self.pipeline[-1]
            super().on_response_complete()

        def send_400_response(self, _msg: str) -> None:
            self._reject(WireError(INVALID_REQUEST, _NOT_HTTP))

        def check_timeout(self, now: float) -> None:
            """Close the connection if it has waited too long for a request or for its reader."""
            cycle = self.cycle
            if cycle is not None and cycle.response_started and not cycle.response_complete:
                # A stream, as most open connections of an idle server are.
                self._unread_bytes = 0
                return
            if self._is_unread(now):
                self.transport.abort()
                return
            waited_s = now - self._waits_since
            if self._is_rejected:
                if waited_s > _LINGER_S:
                    self.transport.abort()
            elif waited_s > limits.request_timeout_s and self._is_between_requests():
                if self._head_bytes:
                    text = f"the request did not arrive within {limits.request_timeout_s:g} s"
                    self._reject(WireError(REQUEST_TIMEOUT, text))
                elif self.cycle is None:
                    # After a first request, uvicorn closes idle connections: see KEEP_ALIVE_S.
                    self.transport.close()

        def _is_unread(self, now: float) -> bool:
            """Return whether the client does not read the rest of a whole response."""
            unread_bytes: int = self.transport.get_write_buffer_size()
            has_read = self._unread_bytes - unread_bytes >= _MIN_READ_BYTES
            if has_read or not unread_bytes or not self._unread_bytes:
                self._unread_since, self._unread_bytes = now, unread_bytes
            return unread_bytes > 0 and now - self._unread_since > limits.response_timeout_s

        def _is_between_requests(self) -> bool:
            """Return whether the connection waits for a head; part of it may have arrived."""
            return self.cycle is None or self.cycle.response_complete

        def _reject(self, error: WireError) -> None:
            """Read no more and respond with an error, or just close during another response."""
            if self._is_rejected or self.transport.is_closing():
                return
            is_idle = self.cycle is None or (
                self.cycle.response_complete and not self.cycle.more_body
            )
            if not is_idle:
                # Another response is under way, or its request has not ended.
                self.transport.close()
                return
            self._is_rejected = True
            self._waits_since = self.loop.time()
            if self.timeout_keep_alive_task is not None:
                self.timeout_keep_alive_task.cancel()
                self.timeout_keep_alive_task = None  # type: ignore[misc]
            self._send_error(error)
            if self.transport.can_write_eof():
                self.transport.write_eof()

        def _send_error(self, error: WireError) -> None:
            body = dumps(rest_error_body(error)).encode("utf-8")
            status = error.kind.http_status
            headers = {
                "content-type": "application/json",
                "content-length": str(len(body)),
                "cache-control": "no-store",
                "connection": "close",
                **error.headers(),
            }
            phrase = _PHRASES.get(status, "Service Unavailable")
            lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
            head = "\r\n".join([*lines, "", ""]).encode("ascii")
            self.transport.write(head + body)

    return LimitedProtocol


def _remove_upgrade(piece: bytes) -> bytes:
    """Rename the Upgrade header of a request, unless it is for a WebSocket.

    Java clients send one with their first request. httptools would then treat the body as data of
    the other protocol.
    """
    if _UPGRADE.search(piece) is None:
        return piece
    head, end, rest = piece.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Offered:", head) + end + rest
