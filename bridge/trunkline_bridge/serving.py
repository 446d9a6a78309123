"""Serves the bridge over HTTP inside a process that has an event loop of its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from trunkline.client import running
from trunkline.errors import ConfigurationError


@asynccontextmanager
async def serve_http(app: ASGIApp, *, host: str, port: int, grace_s: int) -> AsyncIterator[str]:
    """Serve an application for the length of a block; yield its URL, port 0 having become a port.

    On leaving, no connection is accepted any more and those open have `grace_s` to finish.

    Raises:
        ConfigurationError: the address can't be listened on; the text says why and what to do.
    """
    with _listen(host, port) as listener:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=grace_s,
        )
        server = _EmbeddedServer(config)
        async with running(server.serve(sockets=[listener])):
            await server.is_serving.wait()
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.getsockname()[1]}"
            await server.stop()


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers, which belong to the process, and with a way to wait."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()
        self._has_stopped = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._has_stopped.set()

    async def stop(self) -> None:
        self.should_exit = True
        await self._has_stopped.wait()


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
