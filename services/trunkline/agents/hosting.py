"""Puts agents on a mesh: their journal, their tasks, their services, their registration."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from trunkline.agents.authoring import FunctionAgent
from trunkline.agents.journals import JournalFolder
from trunkline.agents.options import load_agent_options
from trunkline.agents.takeover import Takeover, adopt_journal, claim_standby_names
from trunkline.client import ChannelPool, Directory, RegistryClient, run_in_background
from trunkline.client.content_resolver import ContentResolver
from trunkline.errors import ConfigurationError, PeerUnavailableError
from trunkline.registry import Membership
from trunkline.runtime import ServiceStatus
from trunkline.server.mesh_server import MeshServer
from trunkline.settings import (
    AgentSettings,
    Settings,
    advertised_address,
    check_exposure,
    dial_address,
)
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.outbox import RetryPolicy
from trunkline.tasks.settings import TaskSettings
from trunkline.traces import configure_tracing
from trunkline.v1 import registry_service_pb2, snapshot_pb2, task_service_pb2


class AgentReadiness:
    """Which agents of a host the mesh isn't told of yet, and news of the others' cards."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._news = asyncio.Event()

    def mark_absent(self, agent: str) -> None:
        """Say that an agent isn't there yet."""
        self._absent.add(agent)

    def is_ready(self, agent: str) -> bool:
        """Whether the mesh is told of an agent."""
        return agent not in self._absent

    def mark_changed(self, agent: str) -> None:
        """Say that an agent is there, or has another card than before."""
        self._absent.discard(agent)
        self._news.set()

    async def wait_for_change(self) -> None:
        """Wait for news since this was called last."""
        await self._news.wait()
        self._news.clear()


def task_settings(settings: Settings) -> TaskSettings:
    """Return the part of the settings that tasks are run by."""
    return TaskSettings(
        lease_s=settings.lease_s,
        flush_interval_s=settings.flush_interval_ms / 1000,
        cancel_grace_s=settings.cancel_grace_s,
        queue_limit=settings.queue_limit,
        task_limit=settings.task_limit,
        agent_timeouts=settings.agent_timeouts,
        webhook_retry=RetryPolicy(give_up_s=settings.webhook_give_up_s),
    )


@asynccontextmanager
async def open_host(
    agents: Sequence[Agent],
    *,
    directory: Directory,
    settings: Settings,
    readiness: AgentReadiness | None = None,
) -> AsyncIterator[TaskHost]:
    """Open the agents' journals and run their tasks; descendants are canceled over the mesh.

    The journals are those of the first agent's name that no other process has. `attendance` is
    told of the agents that aren't there from the start.

    Raises:
        ConfigurationError: what is set of an agent is wrong.
        JournalUnavailableError: there is no journal, and none can be made.
    """
    agents = [apply_options(agent, settings) for agent in agents]

    async def cancel_child(task_id: str, account: str) -> None:
        name, is_elsewhere, id_there = task_id.partition(":")
        if is_elsewhere:
            await _canceler(agents, name)(id_there)
            return
        if not directory.knows_task_host(task_id):
            # Not that there is no such task: its host may be away since before we came.
            raise PeerUnavailableError(task_id, "its host has not been on the mesh so far")
        client = directory.client_for_task(task_id)
        await client.cancel_task(task_id, account=account, reason="its parent was canceled")

    async def answer_parent(
        request: task_service_pb2.AnswerApprovalRequest,
    ) -> snapshot_pb2.ApprovalInfo:
        return await directory.client_for_task(request.task_id).answer_approval(request)

    journals = JournalFolder(settings)
    family = agents[0].card.name
    names = {agent.card.name for agent in agents}
    own = journals.open_own(family, names)
    try:
        async with (
            _kept(agents, settings, readiness or AgentReadiness()),
            TaskHost(
                own.journal,
                agents,
                settings=task_settings(settings),
                cancel_child=cancel_child,
                checkpoint_path=own.checkpoint_path,
                answer_parent=answer_parent,
                open_remote=ContentResolver(directory, settings.allow_fetch).open,
            ) as hosts,
        ):
            for free in journals.open_free(family, names):
                await adopt_journal(hosts, free)
            yield hosts
    finally:
        own.journal.close()


def apply_options(agent: Agent, settings: Settings) -> Agent:
    """Return an agent with the settings of its own that the process's settings have of it.

    Raises:
        ConfigurationError: they make no sense, or it takes none.
    """
    if not isinstance(agent, FunctionAgent) or agent.settings is not None:
        return agent
    name = agent.card.name
    given = settings.agent_options.get(name, AgentSettings()).options
    if agent.settings_type is not None:
        return agent.with_settings(load_agent_options(name, agent.settings_type, given))
    if given:
        problem = "it takes no settings; declare them by @agent(settings=…)"
        raise ConfigurationError(f"[agent.{name}.options]", problem)
    return agent


@asynccontextmanager
async def _kept(
    agents: Sequence[Agent], settings: Settings, attendance: AgentReadiness
) -> AsyncIterator[None]:
    """Do what some agents need for being served, for the length of a block."""
    async with AsyncExitStack() as stack:
        for agent in agents:
            if isinstance(agent, FunctionAgent) and agent.lifespan is not None:
                name = agent.card.name
                attendance.mark_absent(name)
                keeping = agent.lifespan(settings, partial(attendance.mark_changed, name))
                await stack.enter_async_context(keeping)
        yield


def _canceler(agents: Sequence[Agent], name: str) -> Callable[[str], Awaitable[None]]:
    """How tasks are canceled that an agent has made outside the mesh."""
    for agent in agents:
        if agent.card.name == name and isinstance(agent, FunctionAgent) and agent.cancel_remote:
            return agent.cancel_remote
    raise PeerUnavailableError(f"agent {name!r}", "it is not here to cancel what it has begun")


@asynccontextmanager
async def open_membership(  # noqa: PLR0913  what it is put there with, each by name
    hosts: TaskHost,
    registry: RegistryClient,
    directory: Directory,
    *,
    address: str,
    settings: Settings,
    services: Sequence[str] = (),
    readiness: AgentReadiness | None = None,
) -> AsyncIterator[Membership]:
    """Put hosts on the mesh, and let them take over the journals and the names of those that die.

    Agents that `attendance` calls absent are served, and the mesh is told of them when they come.
    On leaving, nothing new is taken, and what runs has `drain_grace_s` to end. Only then the
    registry is told: what still runs may need its own agents, and its readers its address.
    """
    readiness = readiness or AgentReadiness()

    def describe() -> registry_service_pb2.Host:
        return describe_host(hosts, address=address, services=services, readiness=readiness)

    async def tell_news() -> None:
        while True:
            await readiness.wait_for_change()
            membership.update(describe())

    async with Membership(registry, describe()) as membership:
        takeover = Takeover(
            hosts,
            JournalFolder(settings),
            membership,
            directory,
            lease_s=settings.lease_s,
            describe=describe,
        )
        try:
            async with (
                run_in_background(takeover.run()),
                run_in_background(
                    claim_standby_names(membership, directory, every_s=settings.lease_s / 3)
                ),
                run_in_background(tell_news()),
            ):
                yield membership
        finally:
            await hosts.drain(settings.drain_grace_s)


def describe_host(
    hosts: TaskHost,
    *,
    address: str,
    services: Sequence[str] = (),
    readiness: AgentReadiness | None = None,
) -> registry_service_pb2.Host:
    """Return what the registry is told of a host, which is named after its own journal."""
    return registry_service_pb2.Host(
        host_id=hosts.journal.id,
        address=address,
        journal_ids=hosts.journal_ids,
        services=services,
        agents=[
            registry_service_pb2.AgentRegistration(
                card=agent.card,
                direct_replies=agent.direct_replies,
                routable=agent.routable,
                extended_skills=agent.extended_skills,
            )
            for agent in hosts.agents.values()
            if readiness is None or readiness.is_ready(agent.card.name)
        ],
    )


def add_host_services(server: MeshServer, host: TaskHost) -> None:
    """Add the services that every host has."""
    server.add_message_service(host)
    server.add_task_service(host)
    server.add_artifact_service(host)
    server.add_webhook_service(host.push_configs.outbox)


_STOP_GRACE_S = 1.0


@asynccontextmanager
async def join_mesh(
    build_agents: Callable[[Directory], Sequence[Agent]], settings: Settings
) -> AsyncIterator[ServiceStatus]:
    """Serve agents at `settings.listen` and put them on the mesh at `settings.mesh`.

    An agent that another living host has is on standby until that is gone: then it takes its place.
    On leaving, nothing new is taken, and what runs has `drain_grace_s` to end.

    Raises:
        ConfigurationError: the address can't be listened on, or what is set of an agent is wrong.
        JournalUnavailableError: the data directory can't be used.
    """
    check_exposure("listen", settings.listen, is_allowed=settings.insecure)
    told = advertised_address(settings.listen, settings.advertise, mesh=settings.mesh)
    mesh = str(settings.mesh)
    channels = ChannelPool.from_settings(settings)
    directory = Directory(channels, mesh)
    agents = build_agents(directory)
    name = agents[0].card.name
    attendance = AgentReadiness()
    async with AsyncExitStack() as stack:
        stack.callback(configure_tracing(name, mesh_address=mesh).shutdown)
        await stack.enter_async_context(channels)
        await stack.enter_async_context(directory)
        hosts = await stack.enter_async_context(
            open_host(agents, directory=directory, settings=settings, readiness=attendance)
        )
        server = MeshServer()
        add_host_services(server, hosts)
        (address,) = await server.start(str(settings.listen))
        stack.push_async_callback(server.stop, _STOP_GRACE_S)
        # Calls to itself need not find the way that others take.
        channels.add_alias(told.with_bound_port(address), dial_address(address))
        registry = RegistryClient(channels.get(mesh))
        membership = await stack.enter_async_context(
            open_membership(
                hosts,
                registry,
                directory,
                address=told.with_bound_port(address),
                settings=settings,
                readiness=attendance,
            )
        )
        ready = [{"agent": agent.card.name, "grpc": address} for agent in agents]
        yield ServiceStatus(
            ready,
            joined=membership.registered,
            failed=hosts.lost,
            standby=membership.standby,
        )
