"""Puts agents on a mesh: their journal, their tasks, their services, their registration."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from trunkline.agents.authoring import FunctionAgent
from trunkline.agents.journals import Journals
from trunkline.agents.options import read_options
from trunkline.agents.takeover import Takeover, adopt, claim_names
from trunkline.client import Directory, RegistryClient, running
from trunkline.client.web.elsewhere import Elsewhere
from trunkline.errors import ConfigurationError, PeerUnavailableError
from trunkline.registry import Membership
from trunkline.server.mesh_server import MeshServer
from trunkline.settings import AgentOptions, Settings
from trunkline.tasks.agent import Agent
from trunkline.tasks.hosts import Hosts
from trunkline.tasks.outbox import Pace
from trunkline.tasks.serving import Tasks
from trunkline.tasks.settings import TaskSettings
from trunkline.v1 import registry_service_pb2, snapshot_pb2, task_service_pb2


class Attendance:
    """Which agents of a host the mesh isn't told of yet, and news of the others' cards."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._news = asyncio.Event()

    def miss(self, agent: str) -> None:
        """Say that an agent isn't there yet."""
        self._absent.add(agent)

    def is_here(self, agent: str) -> bool:
        """Whether the mesh is told of an agent."""
        return agent not in self._absent

    def note(self, agent: str) -> None:
        """Say that an agent is there, or has another card than before."""
        self._absent.discard(agent)
        self._news.set()

    async def changed(self) -> None:
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
        webhook_pace=Pace(give_up_s=settings.webhook_give_up_s),
    )


@asynccontextmanager
async def open_hosts(
    agents: Sequence[Agent],
    *,
    directory: Directory,
    settings: Settings,
    attendance: Attendance | None = None,
) -> AsyncIterator[Hosts]:
    """Open the agents' journals and run their tasks; descendants are canceled over the mesh.

    The journals are those of the first agent's name that no other process has. `attendance` is
    told of the agents that aren't there from the start.

    Raises:
        ConfigurationError: what is set of an agent is wrong.
        JournalUnavailableError: there is no journal, and none can be made.
    """
    agents = [configured(agent, settings) for agent in agents]

    async def cancel_child(task_id: str, account: str) -> None:
        name, is_elsewhere, id_there = task_id.partition(":")
        if is_elsewhere:
            await _canceler(agents, name)(id_there)
            return
        if not directory.knows_host_of(task_id):
            # Not that there is no such task: its host may be away since before we came.
            raise PeerUnavailableError(task_id, "its host has not been on the mesh so far")
        client = directory.for_task(task_id)
        await client.cancel_task(task_id, account=account, reason="its parent was canceled")

    async def answer_parent(
        request: task_service_pb2.AnswerApprovalRequest,
    ) -> snapshot_pb2.ApprovalInfo:
        return await directory.for_task(request.task_id).answer_approval(request)

    journals = Journals(settings)
    family = agents[0].card.name
    names = {agent.card.name for agent in agents}
    own = journals.open_own(family, names)
    try:
        async with (
            _kept(agents, settings, attendance or Attendance()),
            Hosts(
                own.journal,
                agents,
                settings=task_settings(settings),
                cancel_child=cancel_child,
                checkpoint_path=own.checkpoint_path,
                answer_parent=answer_parent,
                open_elsewhere=Elsewhere(directory, settings.allow_fetch).open,
            ) as hosts,
        ):
            for free in journals.open_free(family, names):
                await adopt(hosts, free)
            yield hosts
    finally:
        own.journal.close()


def configured(agent: Agent, settings: Settings) -> Agent:
    """Return an agent with the settings of its own that the process's settings have of it.

    Raises:
        ConfigurationError: they make no sense, or it takes none.
    """
    if not isinstance(agent, FunctionAgent) or agent.settings is not None:
        return agent
    name = agent.card.name
    given = settings.agent_options.get(name, AgentOptions()).options
    if agent.settings_type is not None:
        return agent.with_settings(read_options(name, agent.settings_type, given))
    if given:
        problem = "it takes no settings; declare them by @agent(settings=…)"
        raise ConfigurationError(f"[agent.{name}.options]", problem)
    return agent


@asynccontextmanager
async def _kept(
    agents: Sequence[Agent], settings: Settings, attendance: Attendance
) -> AsyncIterator[None]:
    """Do what some agents need for being served, for the length of a block."""
    async with AsyncExitStack() as stack:
        for agent in agents:
            if isinstance(agent, FunctionAgent) and agent.keep is not None:
                name = agent.card.name
                attendance.miss(name)
                keeping = agent.keep(settings, partial(attendance.note, name))
                await stack.enter_async_context(keeping)
        yield


def _canceler(agents: Sequence[Agent], name: str) -> Callable[[str], Awaitable[None]]:
    """How tasks are canceled that an agent has made outside the mesh."""
    for agent in agents:
        if agent.card.name == name and isinstance(agent, FunctionAgent) and agent.cancel_elsewhere:
            return agent.cancel_elsewhere
    raise PeerUnavailableError(f"agent {name!r}", "it is not here to cancel what it has begun")


@asynccontextmanager
async def on_mesh(  # noqa: PLR0913  what it is put there with, each by name
    hosts: Hosts,
    registry: RegistryClient,
    directory: Directory,
    *,
    address: str,
    settings: Settings,
    services: Sequence[str] = (),
    attendance: Attendance | None = None,
) -> AsyncIterator[Membership]:
    """Put hosts on the mesh, and let them take over the journals and the names of those that die.

    Agents that `attendance` calls absent are served, and the mesh is told of them when they come.
    On leaving, nothing new is taken, and what runs has `drain_grace_s` to end. Only then the
    registry is told: what still runs may need its own agents, and its readers its address.
    """
    attendance = attendance or Attendance()

    def describe() -> registry_service_pb2.Host:
        return describe_host(hosts, address=address, services=services, attendance=attendance)

    async def tell_news() -> None:
        while True:
            await attendance.changed()
            membership.update(describe())

    async with Membership(registry, describe()) as membership:
        takeover = Takeover(
            hosts,
            Journals(settings),
            membership,
            directory,
            lease_s=settings.lease_s,
            describe=describe,
        )
        try:
            async with (
                running(takeover.run()),
                running(claim_names(membership, directory, every_s=settings.lease_s / 3)),
                running(tell_news()),
            ):
                yield membership
        finally:
            await hosts.drain(settings.drain_grace_s)


def describe_host(
    hosts: Hosts,
    *,
    address: str,
    services: Sequence[str] = (),
    attendance: Attendance | None = None,
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
            if attendance is None or attendance.is_here(agent.card.name)
        ],
    )


def serve_host(server: MeshServer, host: Tasks) -> None:
    """Add the services that every host has."""
    server.add_message_service(host)
    server.add_task_service(host)
    server.add_artifact_service(host)
    server.add_webhook_service(host.push_configs.outbox)
