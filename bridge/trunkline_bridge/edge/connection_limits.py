"""uvicorn's connections, bounded: how many, how slow a request may come, how large its head may be.

uvicorn itself bounds none of these: a client that sends a byte a second, or a head without end,
would keep its connection, and its memory, for ever.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from trunkline_bridge.edge.http import REQUEST_TIMEOUT, rest_error_body
from trunkline_bridge.edge.in_flight import CONNECTION_KEY, Connection
from trunkline_bridge.errors import (
    INVALID_REQUEST,
    OVERLOADED,
    UNAVAILABLE,
    ErrorKind,
    WireError,
)
from trunkline_bridge.versions.json_values import dumps

HEAD_TOO_LARGE = ErrorKind(INVALID_REQUEST.rpc_code, INVALID_REQUEST.reason, 431)
TOO_MANY_CONNECTIONS = ErrorKind(
    OVERLOADED.rpc_code, OVERLOADED.reason, UNAVAILABLE.http_status, code_pb2.RESOURCE_EXHAUSTED
)

MAX_HEAD_BYTES = 64 * 1024
"""How long a request's line and headers may be. They are read in pieces of this size: one that is
longer passes if it ends within its second piece."""

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}
_NOT_HTTP = "this is not a request as HTTP/1.1 has it"
_TOO_LARGE = f"the request's line and headers are longer than {MAX_HEAD_BYTES} bytes; send less"
# A refusal that is followed by a reset is often not read: what still comes is thrown away so long.
_LINGER_S = 2.0
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
# How many requests a client may send before the first is answered; browsers and SDKs send none.
_MAX_PIPELINED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a client may take of this process."""

    max_connections: int = 2000
    """At once. Whoever comes then is told so (503), and to come again."""
    request_timeout_s: float = 30.0
    """How long a request may take to arrive, from the first byte that is waited for to its last."""


def limit_connections(protocol: Any, bounds: ConnectionLimits) -> Any:  # noqa: ANN401, C901  uvicorn has several, and no type for them
    """A protocol of uvicorn's within bounds, whose requests hear that their connection is lost."""

    class Bounded(protocol):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.connection = Connection(transport.abort)
            # Each request gets a copy of this in its scope.
            self.app_state: dict[str, Any] = {**self.app_state, CONNECTION_KEY: self.connection}
            self._served: Any = None
            self._head_bytes = 0
            self._is_refused = False
            self._waits_since = self.loop.time()
            if len(self.connections) > bounds.max_connections:
                text = "there are too many connections; try again in a second"
                self._say(WireError(TOO_MANY_CONNECTIONS, text, retry_after_s="1"))
                transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            # uvicorn knows only the newest; of requests sent ahead of answers this is an older one.
            if self._served is not None and not self._served.response_complete:
                self._served.disconnected = True
            self.connection.stop_requests()

        def data_received(self, data: bytes) -> None:
            # In pieces, or a head could be as long as what comes at once.
            for start in range(0, len(data), MAX_HEAD_BYTES):
                if self._is_refused or self.transport.is_closing():
                    return
                piece = data[start : start + MAX_HEAD_BYTES] if len(data) > MAX_HEAD_BYTES else data
                if self._is_between_requests():
                    piece = _remove_upgrade(piece)
                super().data_received(piece)
                if not self._is_between_requests():
                    self._head_bytes = 0
                    continue
                self._head_bytes += len(piece)
                if self._head_bytes > MAX_HEAD_BYTES:
                    self._refuse(WireError(HEAD_TOO_LARGE, _TOO_LARGE))

        def on_headers_complete(self) -> None:
            # What comes in one piece may hold thousands of requests.
            if len(self.pipeline) >= _MAX_PIPELINED:
                raise ValueError("too many requests are sent ahead of their answers")
            if self.parser.should_upgrade():
                # CONNECT, or an Upgrade that came in two pieces: its body would be lost.
                raise ValueError("no other protocol is spoken here")
            super().on_headers_complete()

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:  # noqa: ANN401  uvicorn's
            self._served = cycle
            super()._start_asgi_task(cycle, app)

        def on_response_complete(self) -> None:
            self._waits_since = self.loop.time()
            super().on_response_complete()

        def send_400_response(self, _msg: str) -> None:
            self._refuse(WireError(INVALID_REQUEST, _NOT_HTTP))

        def look(self, now: float) -> None:
            """End a wait for a request that has lasted too long."""
            waited_s = now - self._waits_since
            if self._is_refused:
                if waited_s > _LINGER_S:
                    self.transport.abort()
            elif waited_s > bounds.request_timeout_s and self._is_between_requests():
                if self._head_bytes:
                    text = f"no whole request has come within {bounds.request_timeout_s:g} s"
                    self._refuse(WireError(REQUEST_TIMEOUT, text))
                else:
                    self.transport.close()

        def _is_between_requests(self) -> bool:
            """Whether a head is waited for; how much of it is there, only the parser knows."""
            return self.cycle is None or self.cycle.response_complete

        def _refuse(self, error: WireError) -> None:
            """Answer instead of the application, if there is a place for it, and hear no more."""
            if self._is_refused or self.transport.is_closing():
                return
            is_unasked = self.cycle is None or (
                self.cycle.response_complete and not self.cycle.more_body
            )
            if not is_unasked:
                # Within another answer, or behind one whose request has not ended.
                self.transport.close()
                return
            self._is_refused = True
            self._waits_since = self.loop.time()
            self._unset_keepalive_if_required()
            self._say(error)
            if self.transport.can_write_eof():
                self.transport.write_eof()

        def _say(self, error: WireError) -> None:
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

    return Bounded


def _remove_upgrade(piece: bytes) -> bytes:
    """Take the offer of another protocol out of a request's head: there is none here.

    Clients in Java make it with each first request. httptools would then take the body for the
    other protocol's.
    """
    if _UPGRADE.search(piece) is None:
        return piece
    head, end, rest = piece.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Offered:", head) + end + rest
