"""The process at the mesh's address: the registry and the span store."""

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp

from trunkline.core.backoff import retry_while_unavailable
from trunkline.core.encryption import open_if_encrypting
from trunkline.core.identity import (
    JoinRecords,
    MeshCredentials,
    RevocationList,
    identity_folder,
    open_credentials,
    temporary_identity,
)
from trunkline.core.network import is_this_machine
from trunkline.core.private_files import PRIVATE_FOLDER, create_private_folder
from trunkline.core.runtime import ServiceStatus, run_in_background
from trunkline.core.settings import HostPort, MeshAddress, Settings
from trunkline.errors import ConfigurationError
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.identity_servicer import IdentityServicer
from trunkline.mesh.server.join_server import serve_join
from trunkline.mesh.server.trace_servicer import OtlpServicer, TraceServicer
from trunkline.observe.audit import AuditLog, open_audit_log
from trunkline.observe.signal_exports import export_signals
from trunkline.observe.traces import SpanStore, configure_tracing
from trunkline.processes.database import open_database, open_join_records, open_registry_files
from trunkline.v1 import identity_service_pb2_grpc, trace_service_pb2_grpc

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase
    from trunkline.observe.traces.shared_traces import SharedTraces

STOP_GRACE_S = 1.0
"""The time for calls in flight when a mesh server stops."""


@asynccontextmanager
async def serve_registry(
    settings: Settings, *, listen: HostPort | None = None
) -> AsyncIterator[ServiceStatus]:
    """Serve a registry and the span store, and nothing else.

    `listen` is the address. The default is the first address of the mesh. If the mesh has one
    address, `listen` replaces it.

    Raises:
        ConfigurationError: the address or the data directory can't be used.
    """
    async with AsyncExitStack() as stack:
        if listen is not None and len(settings.mesh.registries) == 1:
            settings = replace(settings, mesh=MeshAddress((listen,)))
            listen = None
        database = await stack.enter_async_context(open_database(settings))
        audit = await stack.enter_async_context(
            open_audit_log(settings, database, process="registry")
        )
        settings = stack.enter_context(reserve_mesh_address(settings))
        own = listen or settings.mesh.first
        _check_root(settings, own)
        credentials = await stack.enter_async_context(open_credentials(settings, runs_mesh=True))
        records = await retry_while_unavailable(
            partial(open_join_records, settings, database), limit_s=math.inf
        )
        server = MeshServer(
            credentials, policy=settings.policy, audit=audit, gets_small_messages=True
        )
        await stack.enter_async_context(
            add_registry(
                server, settings, credentials, records, database, name="registry", audit=audit
            )
        )
        (address,) = server.bind(str(own))
        await stack.enter_async_context(
            add_identity_service(server, settings, credentials, records, own=own)
        )
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        metrics = await stack.enter_async_context(export_signals(settings, "registry"))
        serving = ServiceStatus([{"mesh": address, **metrics}])
        serving.joined.set()
        yield serving


def _check_root(settings: Settings, own: HostPort) -> None:
    """Check that a further registry has the root of the mesh, which the first registry makes.

    Raises:
        ConfigurationError: it would make a root of its own, and nobody could use both registries.
    """
    first = settings.mesh.first
    folder = identity_folder(settings)
    if (
        own != first
        and settings.identity_certificate is None
        and not (folder.has_root or is_this_machine(str(first)))
    ):
        problem = (
            f"has no root of the mesh; start the registry at {first} first, and copy its folder to "
            "the machines of the others"
        )
        raise ConfigurationError(f"identity folder {folder.path}", problem)


@asynccontextmanager
async def add_registry(  # noqa: PLR0913  independent parts of a process
    server: MeshServer,
    settings: Settings,
    credentials: MeshCredentials,
    records: JoinRecords,
    database: "PostgresDatabase | None",
    *,
    name: str,
    audit: AuditLog | None,
) -> AsyncIterator[None]:
    """Add the registry and the span store to a server, and keep them open.

    The spans of this process, whose service is `name`, are written to the store directly.
    Registrations are recorded if there is an audit log. Registries share the owners of journals,
    and with a database also the traces.

    Raises:
        ConfigurationError: the data directory can't be used.
        JournalUnavailableError: the records of revoked processes can't be read.
    """
    folder = _create_private_folder(settings)
    async with AsyncExitStack() as stack:
        shared = _share_traces(settings, database)
        store = SpanStore(
            folder / "traces.db",
            max_traces=settings.trace_limit,
            retention_s=settings.trace_age_s,
            keyring=open_if_encrypting(settings),
            on_stored=None if shared is None else shared.put,
        )
        stack.callback(store.close)
        await stack.enter_async_context(run_in_background(store.delete_old_traces()))
        if shared is not None:
            await stack.enter_async_context(shared.run(store))
        stack.callback(configure_tracing(name, store=store).shutdown)
        files = await retry_while_unavailable(
            partial(open_registry_files, settings, database), limit_s=math.inf
        )
        registry = RegistryServicer(
            settings.lease_s,
            audit,
            folder=folder,
            files=files,
            list_revoked=RevocationList(records, credentials.revoke).refresh,
        )
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


def _share_traces(settings: Settings, database: "PostgresDatabase | None") -> "SharedTraces | None":
    if database is None:
        return None
    from trunkline.observe.traces.shared_traces import SharedTraces

    return SharedTraces(database, max_traces=settings.trace_limit, retention_s=settings.trace_age_s)


@asynccontextmanager
async def add_identity_service(
    server: MeshServer,
    settings: Settings,
    credentials: MeshCredentials,
    records: JoinRecords,
    *,
    own: HostPort,
) -> AsyncIterator[None]:
    """Renew certificates on a server, and take join tokens at a separate address.

    `own` is the address of this registry.

    A mesh with certificates from elsewhere has neither. A mesh at a picked port takes
    no tokens, and a mesh that other machines reach only at an address that was chosen for it.

    Raises:
        ConfigurationError: the address for join tokens can't be listened on.
    """
    folder = identity_folder(settings)
    if settings.identity_certificate is not None or not folder.has_root:
        yield
        return
    servicer = IdentityServicer(folder, records)
    server.add_service(
        "trunkline.v1.IdentityService",
        identity_service_pb2_grpc.add_IdentityServiceServicer_to_server,
        servicer,
    )
    address = settings.join
    if address is None and own.is_loopback and not folder.is_temporary:
        address = replace(own, port=0)
    if address is None:
        yield
        return
    try:
        async with serve_join(servicer, credentials, str(address)) as bound:
            port = None if own == settings.mesh.first else own.port
            await asyncio.to_thread(folder.write_join_address, bound, registry_port=port)
            yield
    except RuntimeError as error:
        problem = "can't be listened on; choose another address"
        raise ConfigurationError(f"join = {address}", problem) from error


@contextmanager
def reserve_mesh_address(settings: Settings) -> Iterator[Settings]:
    """Yield the settings with a free port in place of port 0 of `mesh`, reserved for the block.

    The identity of a mesh belongs to its address, so the address must be known before it serves.
    """
    if settings.mesh.first.port:
        yield settings
        return
    has_own_identity = settings.identity_folder or settings.identity_certificate
    while True:
        with _reserve_port(settings.mesh.first) as mesh, ExitStack() as stack:
            if not has_own_identity and not stack.enter_context(
                temporary_identity(str(mesh), settings.data_dir)
            ):
                # A mesh that lasts has this port while it runs.
                continue
            yield replace(settings, mesh=MeshAddress((mesh, *settings.mesh.registries[1:])))
            return


@contextmanager
def _reserve_port(address: HostPort) -> Iterator[HostPort]:
    """Yield an address with a free port that no other process gets in the block."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as reservation:
        # A server may listen at an address that is bound this way, while other processes get
        # another free port.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((address.host, 0))
        yield replace(address, port=reservation.getsockname()[1])


def _create_private_folder(settings: Settings) -> Path:
    folder = settings.data_dir / PRIVATE_FOLDER
    try:
        create_private_folder(folder)
    except OSError as error:
        problem = f"can't be used: {error.strerror}; choose another with --data"
        raise ConfigurationError(f"data directory {settings.data_dir}", problem) from error
    return folder
