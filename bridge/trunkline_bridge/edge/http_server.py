"""Serves the bridge over HTTP inside a process that has an event loop of its own."""

import asyncio
import contextlib
import math
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp

from trunkline.client import run_in_background
from trunkline.errors import ConfigurationError
from trunkline_bridge.edge.connection_limits import (
    MAX_HEAD_BYTES,
    ConnectionLimits,
    limit_connections,
)

# How often uvicorn may set the date of its responses, and connections are looked at.
_TICK_S = 1.0
# What reads HTTP: the faster one, httptools, if it is installed.
_PARSER: Literal["auto", "h11", "httptools"] = "auto"
# How long the end of what was cut may take.
_ABORT_TIMEOUT_S = 1
# After so long in silence the system asks whether a client is still there.
_KEEP_IDLE_S = 60
# Journals, agents' connections and what else a process of the mesh has open.
_RESERVED_FILES = 1000


@asynccontextmanager
async def serve_http(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    grace_s: float,
    abort_requests: Callable[[], None] | None = None,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[str]:
    """Serve an application for the length of a block; yield its URL, port 0 having become a port.

    On leaving, no connection is accepted any more and answers under way have `grace_s` to finish;
    then `cut` is called, which ends them with an error that says so, and what is left is closed.

    Raises:
        ConfigurationError: the address can't be listened on; the text says why and what to do.
    """
    with bind_socket(host, port) as listener:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            http=_PARSER,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_graceful_shutdown=math.ceil(grace_s) + _ABORT_TIMEOUT_S,
        )
        config.load()
        config.http_protocol_class = limit_connections(
            config.http_protocol_class, limits or ConnectionLimits()
        )
        server = _EmbeddedServer(config)
        async with run_in_background(server.serve(sockets=[listener])):
            await server.is_serving.wait()
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.getsockname()[1]}"
            await server.stop(grace_s, abort_requests)


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers, which belong to the process, and with a way to wait."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._has_stopped = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # uvicorn's own looks ten times a second whether it should stop.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._is_stopping.wait()
            now = asyncio.get_running_loop().time()
            connections: tuple[Any, ...] = tuple(self.server_state.connections)
            for connection in connections:
                connection.look(now)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._has_stopped.set()

    async def stop(self, grace_s: float, cut: Callable[[], None] | None) -> None:
        self.should_exit = True
        self._is_stopping.set()
        if cut is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._has_stopped.wait()
            cut()
        await self._has_stopped.wait()


def raise_open_file_limit(connections: int) -> None:
    """Let this process have as many connections beside what else it opens, if the system does."""
    wanted = connections + _RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _enable_keep_alive(listener: socket.socket) -> None:
    """Find clients that have gone without a word: connections inherit this."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        # The system's own is two hours.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_IDLE_S)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        ConfigurationError: it can't be; the text says why and what to do.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _enable_keep_alive(listener)
            listener.bind(place)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        problem = (
            f"can't be listened on: {error.strerror}; choose another (port 0 picks a free one)"
        )
        raise ConfigurationError(f"{host}:{port}", problem) from error
    return listener
