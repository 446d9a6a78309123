"""All RPCs of all services of the mesh."""

from trunkline.v1 import (
    artifact_service_pb2,
    identity_service_pb2,
    message_service_pb2,
    messaging_service_pb2,
    registry_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    trace_service_pb2,
    trunk_service_pb2,
    webhook_service_pb2,
)

MODULES = (
    artifact_service_pb2,
    identity_service_pb2,
    message_service_pb2,
    messaging_service_pb2,
    registry_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    trace_service_pb2,
    trunk_service_pb2,
    webhook_service_pb2,
)
OUTSIDE = (
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
)


def all_methods() -> list[str]:
    """Return the paths of all RPCs of all services of the mesh."""
    own = [
        f"/{service.full_name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    return [*own, *OUTSIDE]
