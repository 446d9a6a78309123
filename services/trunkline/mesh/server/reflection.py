"""gRPC reflection of our services, and of nothing else in the process."""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME
from grpc_reflection.v1alpha.reflection import aio as reflection

__all__ = ["SERVICE_NAME", "add_reflection"]


def add_reflection(services: Iterable[str], server: grpc.aio.Server) -> None:
    """Serve reflection of the named services and the proto files that define them.

    A separate descriptor pool hides what else the process has imported. A service that is not in
    the default pool is listed without a description.
    """
    services = tuple(services)
    pool = descriptor_pool.DescriptorPool()
    copied_files: set[str] = set()
    for service in services:
        try:
            descriptor = descriptor_pool.Default().FindServiceByName(service)
        except KeyError:
            continue
        _copy(descriptor.file, pool, copied_files)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(  # type: ignore[no-untyped-call]
        reflection.ReflectionServicer(services, pool=pool), server
    )


def _copy(
    file: FileDescriptor, pool: descriptor_pool.DescriptorPool, copied_files: set[str]
) -> None:
    if file.name in copied_files:
        return
    copied_files.add(file.name)
    for dependency in file.dependencies:
        _copy(dependency, pool, copied_files)
    content = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(content)
    pool.Add(content)
