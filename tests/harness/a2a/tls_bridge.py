"""Serves a bridge with TLS over HTTP and gRPC."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.a2a.grpc_client import ANY_PORT
from trunkline_bridge.a2a.bindings.grpc_server import serve_grpc
from trunkline_bridge.app import Bridge
from trunkline_bridge.http.connection_limits import ConnectionLimits
from trunkline_bridge.http.server import serve_http
from trunkline_bridge.http.server_certificate import ServerCertificate


@asynccontextmanager
async def serving_tls(
    bridge: Bridge, certificate: ServerCertificate, limits: ConnectionLimits | None = None
) -> AsyncIterator[None]:
    """Serve a bridge for the length of a block; its addresses are in `bridge.addresses`."""
    async with (
        serve_http(
            bridge.http,
            host="127.0.0.1",
            port=0,
            grace_s=0,
            abort_requests=bridge.abort_requests,
            limits=limits,
            certificate=certificate,
        ) as url,
        serve_grpc(bridge.grpc, {"": ANY_PORT}, grace_s=0, certificate=certificate) as bound,
    ):
        bridge.addresses.http, bridge.addresses.grpc = url, bound[""]
        yield
