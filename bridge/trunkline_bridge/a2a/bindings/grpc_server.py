"""Serves A2A over gRPC, with health checks and reflection, inside a running event loop.

In this process, A2A's messages are in a package with another name, so that A2A's SDK can be
imported too. Reflection therefore serves copies of the descriptors with the public names.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    empty_pb2,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.descriptor import EnumDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import aio as reflection

from trunkline.core.runtime import start_grpc_server
from trunkline.core.settings import DEFAULTS, HostPort
from trunkline.errors import ConfigurationError
from trunkline.v1 import json_pb2
from trunkline_bridge.a2a.bindings.grpc import SERVICES, GrpcBinding, UnknownMethods
from trunkline_bridge.a2a.versions.grpc_service import GrpcService
from trunkline_bridge.http.connection_limits import MAX_HEAD_BYTES
from trunkline_bridge.http.server import bind_socket
from trunkline_bridge.http.server_certificate import ServerCertificate

# Protobuf has descriptors in Python and in C, whose types have nothing in common.
_FileDescriptor: TypeAlias = Any
_GOOGLE_PACKAGE = "google.protobuf"
_GOOGLE = (empty_pb2.DESCRIPTOR, struct_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR)

# Time limit for the end of aborted calls.
_ABORT_TIMEOUT_S = 1.0
# grpc accepts messages and metadata up to this multiple of our limits, so that our error is sent.
_RECEIVE_LIMIT_FACTOR = 2
# Limit on the concurrent calls of one connection. Further calls wait in the client.
_MAX_STREAMS = 1000
# Time for a client to confirm our settings, which takes honest ones a round trip. Until then, grpc
# accepts headers of any size up to 16 MiB.
_SETTINGS_TIMEOUT_MS = 5_000


def public_pool(
    services: Iterable[GrpcService], *others: _FileDescriptor
) -> descriptor_pool.DescriptorPool:
    """Return a pool with the services of A2A under their public names, and other files."""
    pool = descriptor_pool.DescriptorPool()
    for file in (*_GOOGLE, *others):
        content = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(content)
        pool.Add(content)
    for service in services:
        pool.Add(public_file(service))
    return pool


def public_file(service: GrpcService) -> descriptor_pb2.FileDescriptorProto:
    """Return a file of A2A's package with a service and all types that it uses."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{service.package.replace('.', '/')}/a2a.proto",
        package=service.package,
        syntax="proto3",
        dependency=[imported.name for imported in _GOOGLE],
    )
    service_proto = file.service.add(name=service.name.rpartition(".")[2])
    for method in service.methods:
        service_proto.method.add(
            name=method.name,
            input_type=_public_name(method.request.DESCRIPTOR, service.package),
            output_type=_public_name(method.response.DESCRIPTOR, service.package),
            server_streaming=method.is_streaming,
        )
    for descriptor in _referenced_types(service):
        if isinstance(descriptor, EnumDescriptor):
            descriptor.CopyToProto(file.enum_type.add())
            continue
        message = file.message_type.add()
        descriptor.CopyToProto(message)
        _rename_field_types(message, descriptor, service.package)
    return file


def _referenced_types(service: GrpcService) -> Iterator[Any]:
    """Yield the descriptors of the messages and enums that a service uses, each once."""
    queue: list[Any] = []
    for method in service.methods:
        queue += (method.request.DESCRIPTOR, method.response.DESCRIPTOR)
    seen: set[str] = set()
    while queue:
        descriptor = queue.pop(0)
        if descriptor.full_name in seen or _is_google(descriptor):
            continue
        seen.add(descriptor.full_name)
        # A nested type is part of the descriptor of the type around it.
        if descriptor.containing_type is None:
            yield descriptor
        if not isinstance(descriptor, EnumDescriptor):
            for field in descriptor.fields:
                queue += filter(None, (field.message_type, field.enum_type))


def _rename_field_types(
    message: descriptor_pb2.DescriptorProto,
    descriptor: Any,  # noqa: ANN401  a message
    package: str,
) -> None:
    by_number = {field.number: field for field in descriptor.fields}
    for field in message.field:
        field_type = by_number[field.number].message_type or by_number[field.number].enum_type
        if field_type is not None:
            field.type_name = _public_name(field_type, package)
    for nested in message.nested_type:
        _rename_field_types(nested, descriptor.nested_types_by_name[nested.name], package)


def _public_name(descriptor: Any, package: str) -> str:  # noqa: ANN401  a message or an enum
    if _is_google(descriptor):
        return f".{_GOOGLE_PACKAGE}.{descriptor.name}"
    return f".{package}.{descriptor.full_name.removeprefix(descriptor.file.package + '.')}"


def _is_google(descriptor: Any) -> bool:  # noqa: ANN401  a message or an enum
    """Return whether a type is one of Google's for our callers, as our own types of JSON are."""
    file: str = descriptor.file.name
    return file == json_pb2.DESCRIPTOR.name or file in (google.name for google in _GOOGLE)


@asynccontextmanager
async def serve_grpc(
    binding: GrpcBinding,
    addresses: Mapping[str, HostPort],
    *,
    grace_s: float,
    connection_limit: int = DEFAULTS.connection_limit,
    certificate: ServerCertificate | None = None,
) -> AsyncIterator[Mapping[str, str]]:
    """Serve A2A while a block runs; yield the addresses with their actual ports.

    `addresses` maps names of agents to the addresses of these agents alone. The empty name has the
    address of all agents. Each has its own server, because grpc does not tell a handler which port
    a call came in by.

    With a certificate, the servers speak TLS only.

    gRPC itself refuses connections above `connection_limit` for each server. On exit, the servers
    accept no more calls, and calls in flight have `grace_s` seconds to finish. Then they end with
    an error that tells the client how to continue.

    Raises:
        ConfigurationError: an address can't be bound.
    """
    options = _options(binding.limits.max_bytes, connection_limit)
    checks = health.HealthServicer()
    servers: list[grpc.aio.Server] = []
    bound: dict[str, str] = {}
    try:
        for agent, address in addresses.items():
            server = _build_server(binding, checks, agent, options)
            servers.append(server)
            bound[agent] = _bind(server, address, certificate)
            # Only a server that was started frees its port when it stops.
            await start_grpc_server(server)
        for name in ("", *(service.name for service in SERVICES)):
            await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        yield bound
    finally:
        await checks.enter_graceful_shutdown()
        async with asyncio.TaskGroup() as group:
            stopping = [
                group.create_task(server.stop(grace_s + _ABORT_TIMEOUT_S)) for server in servers
            ]
            await asyncio.wait(stopping, timeout=grace_s)
            binding.abort_all()


def _build_server(
    binding: GrpcBinding,
    checks: health.HealthServicer,
    agent: str,
    options: tuple[tuple[str, int], ...],
) -> grpc.aio.Server:
    """Return a server of an agent, or of all if the name is empty; it has no address yet."""
    server = grpc.aio.server(options=options)
    for service in SERVICES:
        handlers = binding.handlers(service, agent=agent)
        generic = grpc.method_handlers_generic_handler(service.name, handlers)
        server.add_generic_rpc_handlers((generic,))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    _add_reflection(server, SERVICES)
    server.add_generic_rpc_handlers((UnknownMethods(SERVICES),))
    return server


def _bind(server: grpc.aio.Server, address: HostPort, certificate: ServerCertificate | None) -> str:
    # This raises an error with the reason, which grpc's own error lacks.
    with bind_socket(address.host, address.port):
        pass
    try:
        if certificate is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), certificate.grpc_credentials())
    except RuntimeError as error:
        problem = "can't be listened on; choose another (port 0 picks a free one)"
        raise ConfigurationError(str(address), problem) from error
    return str(HostPort(address.host, port))


def _add_reflection(server: grpc.aio.Server, services: Sequence[GrpcService]) -> None:
    names = [service.name for service in services]
    pool = public_pool(services, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    servicer = reflection.ReflectionServicer((*names, HEALTH, REFLECTION), pool=pool)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]


def _options(limit_bytes: int, connection_limit: int) -> tuple[tuple[str, int], ...]:
    return (
        # Otherwise two servers on one port would share the calls.
        ("grpc.so_reuseport", 0),
        # grpc rejects larger messages without advice on what to do, and larger metadata at random.
        ("grpc.max_receive_message_length", _RECEIVE_LIMIT_FACTOR * limit_bytes),
        ("grpc.max_metadata_size", _RECEIVE_LIMIT_FACTOR * MAX_HEAD_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", connection_limit),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.http2.settings_timeout", _SETTINGS_TIMEOUT_MS),
        # Detects clients that vanish without closing: streams may be silent for hours.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Lets clients ping every five seconds. By default grpc accepts one ping in five minutes.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    )
