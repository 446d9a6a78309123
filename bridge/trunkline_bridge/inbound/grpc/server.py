"""Serves A2A over gRPC inside a process that has an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import aio as reflection

from trunkline.errors import ConfigurationError
from trunkline.settings import HostPort
from trunkline_bridge.inbound.grpc.calls import SERVICES, Calls
from trunkline_bridge.inbound.grpc.described import public_pool
from trunkline_bridge.inbound.grpc.unknown import UnknownMethods
from trunkline_bridge.serving import listen

# How long the end of what was cut may take.
_CUT_S = 1.0
# What gRPC takes, of what we do.
_OVER_LIMIT = 2
# Of one connection, at once; more wait at the client.
_STREAMS = 1000


@asynccontextmanager
async def serve_grpc(
    calls: Calls,
    *,
    host: str,
    port: int,
    grace_s: float,
    connection_limit: int = 2000,
) -> AsyncIterator[str]:
    """Serve A2A's services for the length of a block; yield HOST:PORT, port 0 having become a port.

    gRPC itself refuses connections above `connection_limit`. On leaving, no call is taken any
    more, and those under way have `grace_s` to finish; then they end with an error that says how
    to go on.

    Raises:
        ConfigurationError: the address can't be listened on; the text says why and what to do.
    """
    server = grpc.aio.server(options=_options(calls.bounds.limit_bytes, connection_limit))
    for service in SERVICES:
        handlers = grpc.method_handlers_generic_handler(service.name, calls.handlers(service))
        server.add_generic_rpc_handlers((handlers,))
    checks = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    _add_reflection(server)
    server.add_generic_rpc_handlers((UnknownMethods(SERVICES),))
    address = _bind(server, HostPort(host, port))
    await server.start()
    try:
        for name in ("", *(service.name for service in SERVICES)):
            await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        yield address
    finally:
        await checks.enter_graceful_shutdown()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(server.stop(grace_s + _CUT_S))
            await asyncio.wait((stopping,), timeout=grace_s)
            calls.cut()


def _bind(server: grpc.aio.Server, address: HostPort) -> str:
    # grpc would only say that it can't.
    with listen(address.host, address.port):
        pass
    try:
        port = server.add_insecure_port(str(address))
    except RuntimeError as error:
        problem = "can't be listened on; choose another (port 0 picks a free one)"
        raise ConfigurationError(str(address), problem) from error
    return str(HostPort(address.host, port))


def _add_reflection(server: grpc.aio.Server) -> None:
    names = [service.name for service in SERVICES]
    pool = public_pool(SERVICES, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    servicer = reflection.ReflectionServicer((*names, HEALTH, REFLECTION), pool=pool)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]


def _options(limit_bytes: int, connection_limit: int) -> tuple[tuple[str, int], ...]:
    return (
        # Two servers on one port would each get a part of the calls.
        ("grpc.so_reuseport", 0),
        # What is refused here is refused without a word on what to do.
        ("grpc.max_receive_message_length", _OVER_LIMIT * limit_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", connection_limit),
        ("grpc.max_concurrent_streams", _STREAMS),
        # A client that has gone without a word is found by this; streams may be silent for hours.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Clients may ping as well; without this, one ping in five minutes is all that grpc takes.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    )
