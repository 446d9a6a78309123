"""The gRPC server of a process: its addresses, its services and its shutdown."""

import errno
import os
import resource
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health

from trunkline.core.identity import MeshCredentials, StatementVerifier
from trunkline.core.runtime import start_grpc_server
from trunkline.core.settings import PolicySettings
from trunkline.errors import ConfigurationError
from trunkline.mesh.server import (
    artifact_servicer,
    message_servicer,
    reflection,
    task_servicer,
    trunk_servicer,
    webhook_servicer,
)
from trunkline.mesh.server.authorization import MeshAuthorizer
from trunkline.mesh.server.interceptor import CallInterceptor
from trunkline.observe.audit import AuditLog
from trunkline.tasks.host import TaskHost
from trunkline.v1 import (
    artifact_service_pb2_grpc,
    message_service_pb2_grpc,
    registry_service_pb2_grpc,
    task_service_pb2_grpc,
    trunk_service_pb2_grpc,
    webhook_service_pb2_grpc,
)

_Servicer = TypeVar("_Servicer")

REGISTRY = "trunkline.v1.RegistryService"

# Room for a public body of 4 MiB and what the mesh adds to it.
RECEIVE_BYTES = 8 * 1024 * 1024

_MAX_CONNECTIONS: Final = 10_000
HANDSHAKE_MS: Final = 10_000
"""The time in which a client must prove its identity. Until then, its connection costs a file."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Like trunks. Calls that are still open after the grace are the mesh's own watches.
    ("grpc.max_connection_age_ms", int(trunk_servicer.MAX_AGE_S * 1000)),
    ("grpc.max_connection_age_grace_ms", 3_600_000),
    # A port in use must be an error: two servers on one port would share the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", RECEIVE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.http2.settings_timeout", HANDSHAKE_MS),
    # A peer that vanished costs only memory here, so servers ping less often than clients.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Our clients ping every ten seconds even without calls, which grpc would treat as an attack.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
)


class MeshServer:
    """A gRPC server with our interceptor and health checks, for processes of one mesh.

    Create it inside a running event loop. Add its services, start it, and stop it, each once.
    """

    def __init__(
        self,
        credentials: MeshCredentials | None = None,
        *,
        policy: PolicySettings | None = None,
        audit: AuditLog | None = None,
        gets_small_messages: bool = False,
    ) -> None:
        """Without credentials, it listens on Unix sockets only. Without a policy, all may call.

        Acts over its services, and refused calls, are recorded unless there is no audit log.
        `gets_small_messages`: no client sends so much that the server would have to find out how
        much the network takes at once.
        """
        self._credentials = credentials
        self.audit: AuditLog | None = audit
        """The audit log of the process."""
        authorizer = MeshAuthorizer(credentials, policy, audit)
        self.statements: StatementVerifier | None = authorizer.statements
        """Verifies statements of users; None without credentials."""
        self._interceptor = CallInterceptor(authorizer)
        # gRPC finds that out by pings, of which each small message, after a pause, would cause one.
        probe = ("grpc.http2.bdp_probe", int(not gets_small_messages))
        options = (*_OPTIONS, probe, ("grpc.max_allowed_incoming_connections", _connection_limit()))
        self._server = grpc.aio.server(interceptors=(self._interceptor,), options=options)
        self._health = health.HealthServicer()
        self._trunks = trunk_servicer.TrunkServicer(authorizer)
        self._services: list[str] = []

    @property
    def services(self) -> tuple[str, ...]:
        """The full names of the services added, for the registry."""
        return tuple(self._services)

    def add_message_service(self, host: TaskHost) -> None:
        """Serve MessageService for the agents of a host."""
        self.add_service(
            message_servicer.SERVICE,
            message_service_pb2_grpc.add_MessageServiceServicer_to_server,
            message_servicer.MessageServicer(host, self.statements),
        )

    def add_task_service(self, host: TaskHost) -> None:
        """Serve TaskService for the tasks of a host."""
        self.add_service(
            task_servicer.SERVICE,
            task_service_pb2_grpc.add_TaskServiceServicer_to_server,
            task_servicer.TaskServicer(host, self.audit),
        )

    def add_webhook_service(self, host: TaskHost) -> None:
        """Serve WebhookService for the webhooks of a host."""
        self.add_service(
            webhook_servicer.SERVICE,
            webhook_service_pb2_grpc.add_WebhookServiceServicer_to_server,
            webhook_servicer.WebhookServicer(host, self.audit),
        )

    def add_artifact_service(self, host: TaskHost) -> None:
        """Serve ArtifactService for the tasks of a host. It moves too much data for a trunk."""
        self.add_service(
            artifact_servicer.SERVICE,
            artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server,
            artifact_servicer.ArtifactServicer(host, self.audit),
        )

    def add_registry(self, servicer: registry_service_pb2_grpc.RegistryServiceServicer) -> None:
        """Serve RegistryService."""
        self.add_service(
            REGISTRY,
            registry_service_pb2_grpc.add_RegistryServiceServicer_to_server,
            servicer,
        )

    def add_service(
        self,
        service: str,
        register: Callable[[_Servicer, Any], None],
        servicer: _Servicer,
    ) -> None:
        """Serve any service, by its full name, its generated `add_…_to_server` and its servicer.

        Peers call its methods by plain gRPC, and by trunks if trunks carry them.
        """
        register(servicer, _Carriers(self._server, self._trunks))
        self._services.append(service)
        if self._trunks.has_methods and trunk_servicer.SERVICE not in self._services:
            self._services.append(trunk_servicer.SERVICE)
            trunk_service_pb2_grpc.add_TrunkServiceServicer_to_server(self._trunks, self._server)

    def bind(self, *addresses: str) -> tuple[str, ...]:
        """Bind addresses before `start`; return them with their real ports instead of port 0.

        An address is `HOST:PORT`, or `unix:PATH` of a socket. Services can still be added.

        Raises:
            ConfigurationError: an address can't be listened on. The text has the address, the
                reason and what to do.
        """
        return tuple(self._listen(address) for address in addresses)

    async def start(self, *addresses: str) -> tuple[str, ...]:
        """Serve on these addresses too; bind and return them as `bind` does."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        described_services = (*self._services, HEALTH, reflection.SERVICE_NAME)
        reflection.add_reflection(described_services, self._server)
        bound = self.bind(*addresses)
        # Not before: a server that is never started is never stopped, and must be freed.
        if self._credentials is not None:
            self._credentials.on_revoked.add(self._end_revoked)
        try:
            await start_grpc_server(self._server)
            for service in ("", *self._services):
                await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        except BaseException:
            self._ignore_revocations()
            raise
        return bound

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, and cancel open ones after `grace_s` seconds.

        The mesh's own watches (agents, tools, traces, health) end at once. Trunks end after their
        last call.
        """
        self._ignore_revocations()
        await self._health.enter_graceful_shutdown()
        self._interceptor.end_mesh_streams()
        self._trunks.drain()
        await self._server.stop(grace_s)

    def _ignore_revocations(self) -> None:
        if self._credentials is not None:
            self._credentials.on_revoked.discard(self._end_revoked)

    def _end_revoked(self) -> None:
        if self._credentials is not None:
            self._interceptor.end_revoked(self._credentials.revoked)
        # Accepted peers watch again at once.
        self._interceptor.end_mesh_streams()
        self._trunks.end_revoked()

    def _choose_credentials(self, address: str) -> grpc.ServerCredentials:
        if address.startswith("unix:"):
            # Only this user can reach the socket: see `socket_folder`.
            return grpc.local_server_credentials(grpc.LocalConnectionType.UDS)
        if self._credentials is None:
            raise ConfigurationError(address, "needs credentials; without them use a Unix socket")
        return self._credentials.server_credentials()

    def _listen(self, address: str) -> str:
        problem = _find_problem(address)
        if problem:
            raise ConfigurationError(address, problem)
        try:
            port = self._server.add_secure_port(address, self._choose_credentials(address))
        except RuntimeError as error:
            # Another process took the address after the check above.
            raise ConfigurationError(address, _IN_USE) from error
        host, separator, _ = address.rpartition(":")
        return address if address.startswith("unix:") or not separator else f"{host}:{port}"


class _Carriers:
    """What a generated `add_…_to_server` adds handlers to: the server, and its trunks."""

    def __init__(self, server: grpc.aio.Server, trunks: trunk_servicer.TrunkServicer) -> None:
        self._server = server
        self._trunks = trunks

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve the methods of the handlers by plain gRPC."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(
        self, service: str, handlers: "dict[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        """Serve those methods of a service by trunks that trunks carry."""
        self._trunks.add_methods(service, handlers)


def _connection_limit() -> int:
    """Return half of the files that this process may open: strangers must leave it the others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(soft // 2, _MAX_CONNECTIONS)


_IN_USE = (
    "another process listens there; stop it, or choose another address (port 0 picks a free one)"
)


def _find_problem(address: str) -> str:
    """Return the reason why an address can't be bound, or ""; grpc gives none."""
    if address.startswith("unix:"):
        return _find_socket_problem(Path(address.removeprefix("unix:").removeprefix("//")))
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 0xFFFF:
        return "is not HOST:PORT"
    try:
        infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, socket_address = infos[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(socket_address)
    except OSError as error:
        return _IN_USE if error.errno == errno.EADDRINUSE else f"{error.strerror}; choose another"
    return ""


def _find_socket_problem(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"the folder {path.parent} can't be written to"
    # The servers trust every process that can connect.
    status = path.parent.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"others may enter its folder; run `chmod 700 {path.parent}` or choose another"
    # grpc replaces a socket file even while a process listens on it.
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            is_free = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            return "" if is_free else f"{error.strerror or error}; choose another"
    return _IN_USE
