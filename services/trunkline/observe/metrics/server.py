"""Serves the metrics of a process at a separate address."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trunkline.core.embedded_http import serve_routes
from trunkline.core.network import is_ip_address, is_loopback, parse_authority
from trunkline.core.settings import HostPort
from trunkline.observe.metrics.prometheus import PrometheusMetrics


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

    routes = [Route("/metrics", respond)]
    async with serve_routes(routes, address, where="[metrics] address") as port:
        yield f"http://{HostPort(address.host, port)}/metrics"


def _is_local(host: str) -> bool:
    try:
        name = parse_authority(host).host
    except ValueError:
        return False
    return is_loopback(name) or is_ip_address(name)
