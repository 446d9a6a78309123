"""Serves a few routes over HTTP beside the other work of a process, with uvicorn.

It is for small services of this machine: a page for scrapers, or an answer that a browser or an
agent sends to a command. The bridge has a server of its own, with limits for the public.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from trunkline.errors import ConfigurationError
from trunkline.runtime import run_in_background
from trunkline.settings import HostPort

# Further connections get 503.
_MAX_CONNECTIONS: Final = 32
_KEEP_ALIVE_S: Final = 75
# The time that open requests have when the block ends.
_GRACE_S: Final = 1


@asynccontextmanager
async def serve_routes(
    routes: Sequence[Route], address: HostPort, *, where: str
) -> AsyncIterator[int]:
    """Serve routes at an address while a block runs; yield the port. Port 0 picks a free one.

    Heads of requests have at most 64 KiB. Bodies have no limit: routes read what they accept.

    Raises:
        ConfigurationError: the address, which the setting or option `where` names, can't be
            listened on.
    """
    with _bind(address, where) as listener:
        server = _EmbeddedServer(
            uvicorn.Config(
                Starlette(routes=routes),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                # It would need a timer.
                date_header=False,
                # Its limit of heads holds. httptools has none.
                http="h11",
                ws="none",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        async with run_in_background(server.serve(sockets=[listener])):
            await server.is_serving.wait()
            yield listener.getsockname()[1]
            server.is_stopping.set()
            await server.has_stopped.wait()


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers and timer, with events for its start and stop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()
        self.is_stopping = asyncio.Event()
        self.has_stopped = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.has_stopped.set()

    async def main_loop(self) -> None:
        await self.is_stopping.wait()


def _bind(address: HostPort, where: str) -> socket.socket:
    try:
        family, kind, protocol, _, bound = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(bound)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        problem = f"{address} can't be listened on: {error.strerror}; choose another"
        raise ConfigurationError(where, problem) from error
    return listener
