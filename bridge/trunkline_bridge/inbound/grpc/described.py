"""Our A2A services under their public names, for those who ask by reflection.

Their messages are ours and have our names in this process: A2A's own packages stay free for whoever
imports A2A's SDK beside us. So what reflection tells is made here, in a pool of its own.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    empty_pb2,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.descriptor import EnumDescriptor

from trunkline_bridge.inbound.grpc.service import Service, Streaming

# Protobuf has descriptors in Python and in C, and their types have nothing in common.
_File: TypeAlias = Any
_GOOGLE = (empty_pb2.DESCRIPTOR, struct_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR)


def public_pool(services: Iterable[Service], *others: _File) -> descriptor_pool.DescriptorPool:
    """Return a pool with services of A2A under their public names, and other files as they are."""
    pool = descriptor_pool.DescriptorPool()
    for file in (*_GOOGLE, *others):
        content = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(content)
        pool.Add(content)
    for service in services:
        pool.Add(public_file(service))
    return pool


def public_file(service: Service) -> descriptor_pb2.FileDescriptorProto:
    """Return the file that A2A's package would have come from, with all that the service needs."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{service.package.replace('.', '/')}/a2a.proto",
        package=service.package,
        syntax="proto3",
        dependency=[one.name for one in _GOOGLE],
    )
    served = file.service.add(name=service.name.rpartition(".")[2])
    for method in service.methods:
        served.method.add(
            name=method.name,
            input_type=_public(method.request.DESCRIPTOR, service.package),
            output_type=_public(method.response.DESCRIPTOR, service.package),
            server_streaming=isinstance(method, Streaming),
        )
    for described in _reachable(service):
        if isinstance(described, EnumDescriptor):
            described.CopyToProto(file.enum_type.add())
            continue
        message = file.message_type.add()
        described.CopyToProto(message)
        _rename(message, described, service.package)
    return file


def _reachable(service: Service) -> Iterator[Any]:
    """Yield the messages and enums that a service's methods take and give, each once."""
    waiting: list[Any] = []
    for method in service.methods:
        waiting += (method.request.DESCRIPTOR, method.response.DESCRIPTOR)
    seen: set[str] = set()
    while waiting:
        described = waiting.pop(0)
        if described.full_name in seen or _is_google(described):
            continue
        seen.add(described.full_name)
        # What is inside another comes with it.
        if described.containing_type is None:
            yield described
        if not isinstance(described, EnumDescriptor):
            for field in described.fields:
                waiting += filter(None, (field.message_type, field.enum_type))


def _rename(message: descriptor_pb2.DescriptorProto, described: Any, package: str) -> None:  # noqa: ANN401
    by_number = {field.number: field for field in described.fields}
    for field in message.field:
        kind = by_number[field.number].message_type or by_number[field.number].enum_type
        if kind is not None:
            field.type_name = _public(kind, package)
    for inner in message.nested_type:
        _rename(inner, described.nested_types_by_name[inner.name], package)


def _public(described: Any, package: str) -> str:  # noqa: ANN401  a message or an enum
    if _is_google(described):
        return f".{described.full_name}"
    return f".{package}.{described.full_name.removeprefix(described.file.package + '.')}"


def _is_google(described: Any) -> bool:  # noqa: ANN401  a message or an enum
    package: str = described.file.package
    return package.startswith("google.")
