"""The process at the mesh's address: the registry and the span store."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp

from trunkline.audit import AuditLog, open_audit_log
from trunkline.errors import ConfigurationError
from trunkline.private_files import PRIVATE_FOLDER, create_private_folder
from trunkline.registry import RegistryServicer
from trunkline.runtime import ServiceStatus
from trunkline.server import MeshServer
from trunkline.settings import Settings, check_exposure
from trunkline.traces import OtlpServicer, SpanStore, TraceServicer, configure_tracing
from trunkline.v1 import trace_service_pb2_grpc

STOP_GRACE_S = 1.0
"""The time for calls in flight when a mesh server stops."""


@asynccontextmanager
async def serve_registry(settings: Settings) -> AsyncIterator[ServiceStatus]:
    """Serve the registry and the span store at the mesh's address, and nothing else.

    Raises:
        ConfigurationError: the address or the data directory can't be used.
    """
    check_exposure("mesh", settings.mesh, is_allowed=settings.insecure)
    server = MeshServer()
    async with AsyncExitStack() as stack:
        audit = await stack.enter_async_context(open_audit_log(settings, process="registry"))
        await stack.enter_async_context(
            add_registry(server, settings, name="registry", audit=audit)
        )
        (address,) = await server.start(str(settings.mesh))
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        serving = ServiceStatus([{"mesh": address}])
        serving.joined.set()
        yield serving


@asynccontextmanager
async def add_registry(
    server: MeshServer, settings: Settings, *, name: str, audit: AuditLog | None
) -> AsyncIterator[None]:
    """Add the registry and the span store to a server, and keep them open.

    The spans of this process, whose service is `name`, are written to the store directly.
    Registrations are recorded unless there is no audit log.

    Raises:
        ConfigurationError: the data directory can't be used.
    """
    folder = _create_private_folder(settings)
    async with AsyncExitStack() as stack:
        store = SpanStore(
            folder / "traces.db",
            max_traces=settings.trace_limit,
            retention_s=settings.trace_age_s,
        )
        stack.callback(store.close)
        stack.callback(configure_tracing(name, store=store).shutdown)
        registry = RegistryServicer(settings.lease_s, audit)
        server.add_registry(await stack.enter_async_context(registry))
        server.add_service(
            "trunkline.v1.TraceService",
            trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
            TraceServicer(store),
        )
        server.add_service(
            "opentelemetry.proto.collector.trace.v1.TraceService",
            otlp.add_TraceServiceServicer_to_server,
            OtlpServicer(store),
        )
        yield


def _create_private_folder(settings: Settings) -> Path:
    folder = settings.data_dir / PRIVATE_FOLDER
    try:
        create_private_folder(folder)
    except OSError as error:
        problem = f"can't be used: {error.strerror}; choose another with --data"
        raise ConfigurationError(f"data directory {settings.data_dir}", problem) from error
    return folder
