"""Serves an ASGI application with uvicorn inside a running event loop."""

import asyncio
import contextlib
import math
import resource
import socket
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from email.utils import formatdate
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp

from trunkline.errors import ConfigurationError
from trunkline.mesh.client import run_in_background
from trunkline_bridge.http.connection_limits import (
    KEEP_ALIVE_S,
    MAX_HEAD_BYTES,
    ConnectionLimits,
    limit_connections,
)
from trunkline_bridge.http.server_certificate import ServerCertificate
from trunkline_bridge.http.websockets import MAX_FRAME_BYTES, RoomSocketProtocol

# Interval at which the Date header is updated and connection timeouts are checked while there are
# connections.
_TICK_S = 1.0
# uvicorn prefers httptools, which is faster, if it is installed.
_PARSER: Literal["auto", "h11", "httptools"] = "auto"
# Time limit for the end of aborted requests.
_ABORT_TIMEOUT_S = 1
# Idle time after which the system sends TCP keep-alive probes.
_KEEP_IDLE_S = 60
# TLS handshakes beyond the limit of connections. Above both, connections are closed without an
# error.
_HANDSHAKES = 100
# Pings of WebSockets. A client that does not answer in time is disconnected.
_PING_INTERVAL_S = 20.0
_PING_TIMEOUT_S = 20.0
# File descriptors for journals, connections to agents and so on.
_RESERVED_FILES = 1000


@asynccontextmanager
async def serve_http(  # noqa: PLR0913  independent options, each by name
    app: ASGIApp,
    *,
    host: str,
    port: int,
    grace_s: float,
    abort_requests: Callable[[], None] | None = None,
    limits: ConnectionLimits | None = None,
    certificate: ServerCertificate | None = None,
) -> AsyncIterator[str]:
    """Serve an application while a block runs; yield its URL with the actual port.

    With a certificate, the server speaks TLS only, and the URL has https.

    On exit, the server accepts no more connections, and requests in flight have `grace_s` seconds
    to finish. Then `abort_requests` ends the rest with an error, and all connections are closed.

    Raises:
        ConfigurationError: the address can't be bound.
    """
    limits = limits or ConnectionLimits()
    listener = bind_socket(host, port)
    if certificate is not None:
        listener = LimitedListener(listener, limits.max_connections + _HANDSHAKES)
    with listener:
        config = uvicorn.Config(
            app,
            # Found out otherwise, which fails for an application that is a bound method.
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws=RoomSocketProtocol,
            ws_max_size=MAX_FRAME_BYTES,
            # Compressed frames could expand without a limit.
            ws_per_message_deflate=False,
            ws_ping_interval=_PING_INTERVAL_S,
            ws_ping_timeout=_PING_TIMEOUT_S,
            http=_PARSER,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(grace_s) + _ABORT_TIMEOUT_S,
        )
        config.load()
        config.http_protocol_class = limit_connections(config.http_protocol_class, limits)
        if certificate is not None:
            config.ssl = certificate.ssl_context
        server = _EmbeddedServer(config)
        async with run_in_background(server.serve(sockets=[listener])):
            await server.is_serving.wait()
            url_host = f"[{host}]" if ":" in host else host
            scheme = "http" if certificate is None else "https"
            yield f"{scheme}://{url_host}:{listener.getsockname()[1]}"
            await server.stop(grace_s, abort_requests)


class LimitedListener(socket.socket):
    """A listening socket that closes new connections above a limit.

    uvicorn sees a connection only after its TLS handshake, for which a client may take a minute.
    """

    def __init__(self, listener: socket.socket, limit: int) -> None:
        """Take the place of a listening socket."""
        super().__init__(fileno=listener.detach())
        self._limit = limit
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. ConnectionAbortedError: there are too many, so it was closed."""
        connection, address = super().accept()
        if len(self._open) >= self._limit:
            # Closed ones remain until they are collected as garbage.
            self._open = weakref.WeakSet(other for other in self._open if other.fileno() >= 0)
        if len(self._open) >= self._limit:
            connection.close()
            # asyncio ignores it.
            raise ConnectionAbortedError("there are too many connections")
        self._open.add(connection)
        return connection, address


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers, with events for its start and stop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()
        self._is_needed = asyncio.Event()
        self._has_stopped = asyncio.Event()
        self.server_state.connections = _Connections(self._begin_ticks)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # uvicorn's own loop polls ten times a second for the stop flag.
        connections = self.server_state.connections
        while not self.should_exit:
            self._is_needed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S if connections else None):
                    await self._is_needed.wait()
            self._update_date()
            now = asyncio.get_running_loop().time()
            open_connections: tuple[Any, ...] = tuple(connections)
            for connection in open_connections:
                connection.check_timeout(now)

    def _begin_ticks(self) -> None:
        # The response to the connection's first request has the date.
        self._update_date()
        self._is_needed.set()

    def _update_date(self) -> None:
        date = formatdate(usegmt=True).encode()
        self.server_state.default_headers = [(b"date", date), *self.config.encoded_headers]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._has_stopped.set()

    async def stop(self, grace_s: float, abort_requests: Callable[[], None] | None) -> None:
        self.should_exit = True
        self._is_needed.set()
        if abort_requests is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._has_stopped.wait()
            abort_requests()
        await self._has_stopped.wait()


class _Connections(set[Any]):
    """The open connections of a server."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        """`on_first` is called before a connection is added while there is no other."""
        super().__init__()
        self._on_first = on_first

    def add(self, connection: object) -> None:
        """Add a connection."""
        if not self:
            self._on_first()
        super().add(connection)


def raise_open_file_limit(connections: int) -> None:
    """Raise the process's limit of open files to fit `connections`, up to the system's maximum."""
    required = connections + _RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        required = min(required, hard)
    if soft != resource.RLIM_INFINITY and soft < required:
        resource.setrlimit(resource.RLIMIT_NOFILE, (required, hard))


def _enable_keep_alive(listener: socket.socket) -> None:
    """Detect clients that vanish without closing. Accepted connections inherit the option."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        # The system's default is two hours.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_IDLE_S)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        ConfigurationError: the address can't be bound.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _enable_keep_alive(listener)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        problem = (
            f"can't be listened on: {error.strerror}; choose another (port 0 picks a free one)"
        )
        raise ConfigurationError(f"{host}:{port}", problem) from error
    return listener
