"""A mesh of real gRPC servers in this process: a registry, and hosts that join and leave."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp

from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import free_address
from trunkline.core.settings import Settings, SupervisorSettings
from trunkline.errors import PeerUnavailableError
from trunkline.mesh.client import (
    ChannelPool,
    Directory,
    HostClient,
    RegistryClient,
    run_in_background,
)
from trunkline.mesh.registry import Membership, RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.trace_servicer import OtlpServicer
from trunkline.observe.audit import AuditLog
from trunkline.observe.traces import SpanStore
from trunkline.processes.hosting import (
    AgentReadiness,
    add_host_services,
    describe_host,
    open_host,
)
from trunkline.processes.journals import HostJournals
from trunkline.rules.planner import RulesPlanner
from trunkline.supervisor import ChildLimits, Planner, Supervisor
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    registry_service_pb2,
    snapshot_pb2,
)

_Opened = TypeVar("_Opened")

PATIENCE_S = 300.0


@dataclass(slots=True)
class JoinedHost:
    """A host whose server can be cut off and served again."""

    host: TaskHost
    server: MeshServer
    address: str
    membership: Membership | None = None

    def withdraw_agents(self) -> None:
        """Register the host without its agents."""
        assert self.membership is not None
        member = describe_host(self.host, address=self.address)
        del member.agents[:]
        self.membership.update(member)

    async def cut(self) -> None:
        """Close every connection to it; its tasks keep running."""
        await self.server.stop(0)

    async def serve_again(self) -> None:
        """Serve at the same address."""
        self.server = MeshServer(mesh_credentials())
        add_host_services(self.server, self.host)
        await self.server.start(self.address)


class SmallMesh:
    """A mesh in this process, and the calls of a test to it."""

    def __init__(
        self,
        stack: AsyncExitStack,
        folder: Path,
        channels: ChannelPool,
        registry_address: str,
        audit: AuditLog | None = None,
    ) -> None:
        self.registry_address = registry_address
        self.directory = Directory(channels, registry_address)
        self._stack = stack
        self.folder = folder
        self.registry = RegistryClient(channels.get(registry_address))
        self._messages = 0
        self._audit = audit

    async def enter(self, opening: AbstractAsyncContextManager[_Opened]) -> _Opened:
        """Open a context manager for the life of the mesh. Later ones are closed first."""
        return await self._stack.enter_async_context(opening)

    def on_close(self, function: Callable[..., Any], *args: Any) -> None:
        """Call and await a function at the end of the mesh, before what was entered earlier."""
        self._stack.push_async_callback(function, *args)

    async def join(self, *agents: Agent, **settings: Any) -> JoinedHost:
        """Add a host with these agents; return when every directory lists them."""
        host_settings = Settings(data_dir=self.folder, **settings)
        readiness = AgentReadiness()
        host = await self._stack.enter_async_context(
            open_host(
                agents,
                directory=self.directory,
                settings=host_settings,
                journals=HostJournals(host_settings, None),
                readiness=readiness,
                audit=self._audit,
            )
        )
        server = MeshServer(mesh_credentials(), audit=self._audit)
        add_host_services(server, host)
        # A reserved port: while the host is cut off, no other process may get it.
        (address,) = await server.start(free_address())
        joined = JoinedHost(host, server, address)
        self._stack.push_async_callback(joined.cut)
        membership = await self.register(describe_host(host, address=address))
        joined.membership = membership

        async def register_changes() -> None:
            while True:
                await readiness.wait_for_change()
                membership.update(describe_host(host, address=address))

        await self._stack.enter_async_context(run_in_background(register_changes()))
        return joined

    async def register(self, member: registry_service_pb2.Host) -> Membership:
        """Put a host on the mesh; return when every directory lists it."""
        membership = await self._stack.enter_async_context(Membership([self.registry], member))
        await self.directory.wait_until(
            lambda known: any(host.host_id == member.host_id for host in known.hosts),
            timeout_s=PATIENCE_S,
        )
        return membership

    async def serve(self, server: MeshServer, host_id: str, **fields: Any) -> None:
        """Start a server with services of its own as a host; return when every directory lists it.

        The `fields` are further fields of its registration.
        """
        (address,) = await server.start("127.0.0.1:0")
        self.on_close(server.stop, 0)
        member = registry_service_pb2.Host(
            host_id=host_id, address=address, services=server.services, **fields
        )
        await self.register(member)

    async def supervise(
        self,
        *others: Agent,
        name: str = "supervisor",
        limits: ChildLimits | None = None,
        planner: Planner | None = None,
        **options: Any,
    ) -> JoinedHost:
        """Add a host with a supervisor that is ready to run; `options` are SupervisorOptions."""
        supervisor = Supervisor(
            self.directory,
            name=name,
            options=SupervisorSettings(**options),
            planner=planner or RulesPlanner(),
            limits=limits,
        )
        await supervisor.prewarm()
        return await self.join(supervisor, *others)

    def message(self, text: str, *, task_id: str = "", context_id: str = "") -> message_pb2.Message:
        """Return a user's message."""
        self._messages += 1
        return message_pb2.Message(
            message_id=f"m-{self._messages}",
            task_id=task_id,
            context_id=context_id,
            role=message_pb2.ROLE_USER,
            parts=[part_pb2.Part(text=text)],
        )

    async def ask(
        self,
        text: str,
        *,
        agent: str = "supervisor",
        task_id: str = "",
        context_id: str = "",
    ) -> snapshot_pb2.TaskSnapshot:
        """Send a message and wait until the turn is over."""
        answer = await self.client(agent).send_message(
            agent=agent,
            message=self.message(text, task_id=task_id, context_id=context_id),
            submission=message_service_pb2.Submission(),
            timeout_s=PATIENCE_S,
        )
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        return answer

    async def begin(self, text: str, *, agent: str = "supervisor") -> str:
        """Send a message and return the id of its task at once."""
        answer = await self.client(agent).send_message(
            agent=agent,
            message=self.message(text),
            submission=message_service_pb2.Submission(),
            return_immediately=True,
        )
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        return answer.task.id

    async def until(
        self, task_id: str, predicate: Callable[[snapshot_pb2.TaskSnapshot], bool]
    ) -> snapshot_pb2.TaskSnapshot:
        """Follow a task until the predicate is true of its fold; return the fold."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self._follow(task_id, predicate)
                except PeerUnavailableError:
                    # Its host is starting, or starved, for longer than a caller's patience.
                    await asyncio.sleep(0.05)

    async def _follow(
        self, task_id: str, predicate: Callable[[snapshot_pb2.TaskSnapshot], bool]
    ) -> snapshot_pb2.TaskSnapshot:
        client = self.directory.client_for_task(task_id)
        async with client.watch_task(task_id, account="") as stream:
            snapshot = await self.get_task(task_id)
            if predicate(snapshot):
                return snapshot
            async for _ in stream:
                snapshot = await self.get_task(task_id)
                if predicate(snapshot):
                    return snapshot
        raise AssertionError(f"the task ended in another state: {snapshot.task.status}")

    async def get_task(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task."""
        return await self.directory.client_for_task(task_id).get_task(task_id, account="")

    async def events(self, task_id: str) -> Sequence[event_pb2.EventBatch]:
        """Return the events in a task's journal so far."""
        batches: list[event_pb2.EventBatch] = []
        client = self.directory.client_for_task(task_id)
        async with client.watch_task(
            task_id, account="", after=0, with_snapshot=False, until_head=True
        ) as stream:
            async for group in stream:
                batches += map(event_pb2.EventBatch.FromString, group)
        return batches

    def client(self, agent: str) -> HostClient:
        """Return a client of the agent's host."""
        return self.directory.client_for_agent(agent)


@asynccontextmanager
async def open_small_mesh(
    folder: Path,
    *,
    lease_s: float = 10.0,
    audit: AuditLog | None = None,
    spans: SpanStore | None = None,
) -> AsyncIterator[SmallMesh]:
    """Open a mesh with a registry and without hosts. It stores the spans of other processes."""
    async with AsyncExitStack() as stack:
        # Long, because a busy machine may be silent. Hosts that leave close their connections.
        channels = await stack.enter_async_context(
            ChannelPool(mesh_credentials(), ping_s=PATIENCE_S)
        )
        registry = await stack.enter_async_context(RegistryServicer(lease_s, audit))
        server = MeshServer(mesh_credentials(), audit=audit)
        server.add_registry(registry)
        if spans is not None:
            server.add_service(
                "opentelemetry.proto.collector.trace.v1.TraceService",
                otlp.add_TraceServiceServicer_to_server,
                OtlpServicer(spans),
            )
        (address,) = await server.start("127.0.0.1:0")
        stack.push_async_callback(server.stop, 0)
        mesh = SmallMesh(stack, folder, channels, address, audit)
        await stack.enter_async_context(mesh.directory)
        yield mesh
