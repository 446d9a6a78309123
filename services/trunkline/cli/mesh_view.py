"""Connects commands to a mesh and its hosts over gRPC."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import is_mesh_named, resolve_mesh_settings
from trunkline.cli.times import render_age
from trunkline.core.identity import load_credentials
from trunkline.core.settings import ENV_PREFIX, HostPort
from trunkline.errors import (
    PeerHandshakeError,
    PeerUnavailableError,
    TaskNotFoundError,
    UnauthenticatedError,
)
from trunkline.journal.events import parse_journal_id
from trunkline.mesh.client import (
    ChannelPool,
    Directory,
    HostClient,
    MeshChannel,
    RegistryClient,
    ToolClient,
    host_queries,
)
from trunkline.observe import telemetry
from trunkline.v1 import registry_service_pb2, trace_service_pb2_grpc

T = TypeVar("T")

_NO_MESH: Final = "no mesh answers there; start one with `trunkline up`, or give --mesh"
_NO_URL: Final = "; TRUNKLINE_URL is not for this command, TRUNKLINE_MESH is"
_CONNECT_TIMEOUT_S: Final = 2.0
_DIRECTORY_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class MeshView:
    """The hosts of a mesh when the command began, and clients for them."""

    hosts: Sequence[registry_service_pb2.Host]
    lost_hosts: Sequence[registry_service_pb2.Host]
    """The hosts that died, with the journals that no other host has."""
    _address: str
    _channels: ChannelPool

    async def refresh(self) -> "MeshView":
        """Return a view of the mesh as it is now.

        Raises:
            PeerUnavailableError: the mesh does not answer.
        """
        found = await self.registry_client().read_hosts()
        self._channels.expect(found.hosts, registry_address=self._address)
        return replace(self, hosts=found.hosts, lost_hosts=found.lost_hosts)

    @asynccontextmanager
    async def open_directory(self) -> AsyncGenerator[Directory]:
        """Yield a directory of the mesh, which follows its changes while the block runs.

        Raises:
            PeerUnavailableError, PeerTimeoutError: the mesh does not answer.
        """
        # Without a handler, Python would print the warnings of the directory to stderr.
        logging.getLogger("trunkline").addHandler(logging.NullHandler())
        async with Directory(self._channels, self._address) as directory:
            await directory.wait_until(
                lambda current: current.revision > 0, timeout_s=_DIRECTORY_TIMEOUT_S
            )
            yield directory

    def registry_client(self) -> RegistryClient:
        """Return a client of the registry."""
        return RegistryClient(self._channels.get(self._address))

    def host_client(self, host: registry_service_pb2.Host) -> HostClient:
        """Return a client of a host."""
        return self.client_at(host.address)

    def client_at(self, address: str) -> HostClient:
        """Return a client of the host at an address."""
        return HostClient(self._channels.get(address))

    def task_host_client(self, task_id: str) -> HostClient:
        """Return a client of the host that has a task; raises what `find_task_host` raises."""
        return self.host_client(self.find_task_host(task_id))

    def find_task_host(self, task_id: str) -> registry_service_pb2.Host:
        """Return the host that has a task.

        Raises:
            TaskNotFoundError: no host has its journal.
            PeerUnavailableError: the host that had its journal died.
        """
        journal_id = parse_journal_id(task_id)
        for host in self.hosts:
            if journal_id in host.journal_ids:
                return host
        for host in self.lost_hosts:
            if journal_id in host.journal_ids:
                raise _build_lost_error(
                    host, "no other host has the task; try again when it is back"
                )
        raise TaskNotFoundError(task_id)

    def tool_client(self) -> ToolClient:
        """Return a client of the tool adapter."""
        return ToolClient(self._service_channel("trunkline.v1.ToolService"))

    def trace_stub(self) -> "trace_service_pb2_grpc.TraceServiceAsyncStub":
        """Return a client of the span store."""
        return trace_service_pb2_grpc.TraceServiceStub(
            self._service_channel("trunkline.v1.TraceService")
        )

    def channel_for_service(self, full_name: str) -> MeshChannel:
        """Return a channel to a host that serves a service.

        Raises:
            PeerUnavailableError: no host serves it.
        """
        if not any(full_name in host.services for host in self.hosts):
            raise PeerUnavailableError(full_name, "no host on the mesh serves it")
        return self._service_channel(full_name)

    def _service_channel(self, service: str) -> MeshChannel:
        addresses = (host.address for host in self.hosts if service in host.services)
        return self._channels.get(next(addresses, self._address))


async def query_hosts(
    view: MeshView, query: Callable[[HostClient], Awaitable[Iterable[T]]]
) -> tuple[list[T], ExitCode]:
    """Query every host that has a journal; return all results and the exit code.

    An error of a host is printed to stderr and sets the exit code, as does a host that died.
    """
    found = await host_queries.query_hosts(view.hosts, view.client_at, query)
    code = ExitCode.OK
    for error in found.failures:
        code = print_error(error)
    results = [result for answer in found.answers for result in answer]
    return results, print_lost_hosts(view.lost_hosts) or code


def _build_lost_error(host: registry_service_pb2.Host, problem: str) -> PeerUnavailableError:
    names = ", ".join([*(agent.card.name for agent in host.agents), *host.standby_agents])
    since = render_age(host.lease_expire_time.ToDatetime(UTC), datetime.now(UTC))
    return PeerUnavailableError(
        f"the host {f'of {names} ' * bool(names)}at {host.address}",
        f"it left the mesh {since.replace('now', 'just now')}, and {problem}",
    )


def print_lost_hosts(hosts: Iterable[registry_service_pb2.Host]) -> ExitCode:
    """Print an error for each host that died; return the exit code, OK if there is none."""
    code = ExitCode.OK
    for host in hosts:
        remedy = f"`trunkline mesh release {' '.join(host.journal_ids)}` forgets it"
        problem = f"what it has is not listed until it is back; if it never will be, {remedy}"
        code = print_error(_build_lost_error(host, problem))
    return code


@asynccontextmanager
async def open_mesh_view(mesh: str | None, *, is_traced: bool = False) -> AsyncGenerator[MeshView]:
    """Yield a view of the mesh at an address. Without an address, the settings name the mesh.

    Calls make spans only if `is_traced`: the list of traces is about the mesh's work, not about
    commands that look at it.

    Raises:
        ConfigurationError: the address is invalid.
        PeerUnavailableError: no mesh answers there.
        PeerHandshakeError, UnauthenticatedError: this user has no valid identity on its mesh.
    """
    settings = resolve_mesh_settings(mesh)
    address = str(settings.mesh)
    tracing = nullcontext() if is_traced else telemetry.suppress_spans()
    try:
        credentials = load_credentials(settings)
    except UnauthenticatedError as error:
        if await _accepts_connections(settings.mesh):
            raise
        raise PeerUnavailableError(address, _describe_no_mesh(mesh)) from error
    async with ChannelPool(credentials) as channels:
        try:
            found = await RegistryClient(channels.get(address)).read_hosts()
        except PeerHandshakeError:
            # A mesh answers. Its error says what to do.
            raise
        except PeerUnavailableError as error:
            raise PeerUnavailableError(address, _describe_no_mesh(mesh)) from error
        channels.expect(found.hosts, registry_address=address)
        with tracing:
            yield MeshView(found.hosts, found.lost_hosts, address, channels)


def _describe_no_mesh(mesh: str | None) -> str:
    has_only_url = is_mesh_named(None) and not (mesh or os.environ.get(f"{ENV_PREFIX}MESH"))
    return f"{_NO_MESH}{_NO_URL}" if has_only_url else _NO_MESH


async def _accepts_connections(address: HostPort) -> bool:
    """Return True if a server listens at an address."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
