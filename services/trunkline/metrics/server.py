"""Serves the metrics of a process at an address of its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trunkline.errors import ConfigurationError
from trunkline.metrics.prometheus import PrometheusMetrics
from trunkline.network import is_ip_address, is_loopback, parse_authority
from trunkline.runtime import run_in_background
from trunkline.settings import HostPort

# Scrapers, and connections that they keep open. Further ones get 503.
_MAX_CONNECTIONS: Final = 32
_KEEP_ALIVE_S: Final = 75
_GRACE_S: Final = 1


@asynccontextmanager
async def serve_metrics(
    metrics: PrometheusMetrics, address: HostPort, *, is_public: bool
) -> AsyncIterator[str]:
    """Serve the metrics in a block; yield their URL.

    Raises:
        ConfigurationError: the address can't be listened on.
    """

    async def respond(request: Request) -> Response:
        if not is_public and not _is_local(request.headers.get("host", "")):
            # A page of a foreign site can let its own name resolve to this machine.
            return PlainTextResponse("send localhost or an IP address as Host", 421)
        text = await metrics.scrape(request.headers.get("accept", ""))
        headers = {"content-type": text.content_type, "cache-control": "no-store"}
        return Response(text.body, headers=headers)

    with _bind(address) as listener:
        server = _EmbeddedServer(
            uvicorn.Config(
                Starlette(routes=[Route("/metrics", respond)]),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                # It would need a timer.
                date_header=False,
                ws="none",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        async with run_in_background(server.serve(sockets=[listener])):
            await server.is_serving.wait()
            yield f"http://{HostPort(address.host, listener.getsockname()[1])}/metrics"
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


def _is_local(host: str) -> bool:
    try:
        name = parse_authority(host).host
    except ValueError:
        return False
    return is_loopback(name) or is_ip_address(name)


def _bind(address: HostPort) -> socket.socket:
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
        raise ConfigurationError("[metrics] address", problem) from error
    return listener
