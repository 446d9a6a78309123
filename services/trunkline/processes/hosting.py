"""Hosting of agents: their journals, their services and their registration on a mesh."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from trunkline.agents.authoring import FunctionAgent
from trunkline.agents.calls.agent_call import ChildLimits
from trunkline.agents.calls.tool_source import MeshTools
from trunkline.agents.calls.turn_calls import MeshCallees
from trunkline.agents.reasoning import ModelChoice
from trunkline.agents.reasoning.model_results import ModelResults
from trunkline.core.identity import Role, open_credentials
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import (
    ENV_PREFIX,
    AgentSettings,
    OptionsT,
    Settings,
    advertised_address,
    dial_address,
    read_options,
)
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError, PeerUnavailableError, TaskNotFoundError
from trunkline.journal.events import parse_journal_id
from trunkline.journal.store import JournalReader
from trunkline.mesh.client import ChannelPool, Directory, run_in_background
from trunkline.mesh.client.content_resolver import ContentResolver
from trunkline.mesh.client.mesh_words import TOOL_SERVICE
from trunkline.mesh.registry import Membership
from trunkline.mesh.server.mesh_server import MeshServer
from trunkline.observe.audit import AuditLog, open_audit_log
from trunkline.observe.signal_exports import export_signals
from trunkline.observe.traces import MeshTarget, configure_tracing
from trunkline.processes.database import find_small_files, open_database
from trunkline.processes.journals import HostJournals
from trunkline.processes.takeover import Takeover
from trunkline.processes.usage import open_usage_store
from trunkline.tasks.agent import Agent
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.host import TaskHost
from trunkline.tasks.resources import OtherHosts
from trunkline.v1 import registry_service_pb2, snapshot_pb2, task_service_pb2

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase


class AgentReadiness:
    """The agents of a host that may be registered, and notification of changes to them."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._changed = asyncio.Event()

    def mark_absent(self, agent: str) -> None:
        """Note that an agent is not ready to be registered."""
        self._absent.add(agent)

    def is_ready(self, agent: str) -> bool:
        """Return True if an agent may be registered."""
        return agent not in self._absent

    def mark_changed(self, agent: str) -> None:
        """Note that an agent is ready, or that its card has changed."""
        self._absent.discard(agent)
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait for a change since the last call."""
        await self._changed.wait()
        self._changed.clear()


@asynccontextmanager
async def open_host(  # noqa: PLR0913  collaborators and options, each by name
    agents: Sequence[Agent],
    *,
    directory: Directory,
    settings: Settings,
    journals: HostJournals,
    database: "PostgresDatabase | None" = None,
    readiness: AgentReadiness | None = None,
    audit: AuditLog | None = None,
) -> AsyncIterator[TaskHost]:
    """Open the agents' journals and run their tasks; cancel descendants over the mesh.

    The own journal is of the first agent's family; see `HostJournals.open_own`. Agents that are not
    ready from the start are marked in `readiness`. Answers to approvals are recorded in the audit
    log.

    Raises:
        ConfigurationError: an agent's settings are invalid.
        JournalUnavailableError: there is no journal, and none can be made.
    """
    agents = [
        connect_calls(apply_options(agent, settings), directory, settings) for agent in agents
    ]

    async def cancel_child(task_id: str, account: str) -> None:
        name, is_remote, remote_id = task_id.partition(":")
        if is_remote:
            await _find_canceler(agents, name)(remote_id)
            return
        # The task may exist: its host may have been away since before this process started. If its
        # journal is in the store that hosts share, any of them reaches the task.
        is_known = directory.knows_task_host(task_id) or await _is_stored(reader, task_id)
        try:
            client = directory.client_for_task(task_id) if is_known else None
        except TaskNotFoundError:
            client = None
        if client is None:
            raise PeerUnavailableError(task_id, "its host has not been on the mesh so far")
        await client.cancel_task(task_id, account=account, reason="its parent was canceled")

    async def answer_parent(
        request: task_service_pb2.AnswerApprovalRequest,
    ) -> snapshot_pb2.ApprovalInfo:
        client = directory.client_for_task(request.task_id)
        return (await client.tasks.AnswerApproval(request)).approval

    files = find_small_files(settings, database)
    names = {agent.card.name for agent in agents}
    reader = await journals.open_reader()
    own = await journals.open_own(agents[0].card.name, names)
    if not own.is_new:
        directory.expect_service(TOOL_SERVICE)
    try:
        async with (
            _open_budgets(settings) as budgets,
            _run_lifespans(agents, settings, files, readiness or AgentReadiness()),
            TaskHost(
                own.journal,
                agents,
                settings=settings,
                others=OtherHosts(
                    cancel_child,
                    answer_parent,
                    ContentResolver(directory, settings.allow_fetch).open,
                ),
                memory=own.memory,
                audit=audit,
                budgets=budgets,
                reader=reader,
            ) as host,
        ):
            yield host
    finally:
        await own.journal.close()


async def _is_stored(reader: JournalReader | None, task_id: str) -> bool:
    """Return whether the journal of a task is in the store that hosts share, if there is one."""
    return reader is not None and bool(await reader.find_leases({parse_journal_id(task_id)}))


@asynccontextmanager
async def _open_budgets(settings: Settings) -> AsyncIterator[Budgets | None]:
    """Open the budgets, if the settings have budgets.

    Raises:
        ConfigurationError, JournalUnavailableError: the store of usage can't be used.
    """
    if not settings.limits.has_budgets:
        yield None
        return
    budgets = Budgets(open_usage_store(settings), settings.limits)
    try:
        yield budgets
    finally:
        await asyncio.to_thread(budgets.close)


def apply_options(agent: Agent, settings: Settings) -> Agent:
    """Return the agent with its options from the process's settings; unchanged if it has settings.

    Raises:
        ConfigurationError: the options are invalid, or the agent takes none.
    """
    if not isinstance(agent, FunctionAgent) or agent.settings is not None:
        return agent
    name = agent.card.name
    options = settings.agent_options.get(name, AgentSettings()).options
    if agent.settings_type is not None:
        return agent.with_settings(load_agent_options(name, agent.settings_type, options))
    if options:
        problem = "it takes no settings; declare them by @agent(settings=…)"
        raise ConfigurationError(f"[agent.{name}.options]", problem)
    return agent


def load_agent_options(
    agent: str,
    kind: type[OptionsT],
    table: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
) -> OptionsT:
    """Return an agent's settings from its table and from variables, which take precedence.

    A variable is TRUNKLINE_AGENT_NAME_FIELD in capitals, with `_` for `-` and `.`.

    Raises:
        ConfigurationError: it names the key or the variable that is wrong, or missing.
    """
    return read_options(
        kind,
        table,
        environment=os.environ if environment is None else environment,
        key=lambda path: f"[agent.{agent}.options] {path}".rstrip(),
        variable=lambda name: (
            f"{ENV_PREFIX}AGENT_{agent}_{name}".upper().replace("-", "_").replace(".", "_")
        ),
    )


def connect_calls(agent: Agent, directory: Directory, settings: Settings) -> Agent:
    """Return the agent with the agents and tools of the mesh, for the calls of its function."""
    if not isinstance(agent, FunctionAgent):
        return agent
    callees = MeshCallees(
        directory,
        MeshTools(directory, settings.agent_options.get(agent.card.name)),
        ChildLimits.from_settings(settings),
        agent.model or ModelResults(ModelChoice.for_agent(settings, agent.card.name)),
    )
    return replace(agent, callees=callees)


@asynccontextmanager
async def _run_lifespans(
    agents: Sequence[Agent], settings: Settings, files: SmallFiles, readiness: AgentReadiness
) -> AsyncIterator[None]:
    """Run the lifespans of the agents that have one, for the length of a block.

    Agents whose cards change meanwhile are registered again.
    """
    async with AsyncExitStack() as stack:
        for agent in agents:
            if agent.lifespan is not None:
                name = agent.card.name
                readiness.mark_absent(name)
                opening = agent.lifespan(settings, files, partial(readiness.mark_changed, name))
                await stack.enter_async_context(opening)
        yield


def _find_canceler(agents: Sequence[Agent], name: str) -> Callable[[str], Awaitable[None]]:
    """Return the function that cancels an agent's tasks outside the mesh."""
    for agent in agents:
        if agent.card.name == name and isinstance(agent, FunctionAgent) and agent.cancel_remote:
            return agent.cancel_remote
    raise PeerUnavailableError(
        f"agent {name!r}", "it does not run here, so its remote task can't be canceled"
    )


@asynccontextmanager
async def open_membership(  # noqa: PLR0913  collaborators and options, each by name
    host: TaskHost,
    directory: Directory,
    *,
    address: str,
    settings: Settings,
    journals: HostJournals,
    services: Sequence[str] = (),
    messaging_mode: str = "",
    readiness: AgentReadiness | None = None,
) -> AsyncIterator[Membership]:
    """Register a host, and let it take over the journals of hosts that are gone.

    Agents that are not ready are served, and registered once they are. On leaving, the host refuses
    new tasks and open turns have `drain_grace_s` to end. The host is deregistered only then,
    because these turns may still call its agents, and their readers need its address. Other hosts
    of the same agents continue what remains.
    """
    readiness = readiness or AgentReadiness()

    def describe() -> registry_service_pb2.Host:
        described = describe_host(host, address=address, services=services, readiness=readiness)
        described.messaging_mode = messaging_mode
        return described

    async def register_changes() -> None:
        while True:
            await readiness.wait_for_change()
            membership.update(describe())

    async with Membership(
        directory.registries, describe(), read_load=lambda: describe_load(host)
    ) as membership:
        takeover = Takeover(
            host,
            journals,
            membership,
            directory,
            lease_s=settings.lease_s,
            describe=describe,
        )
        try:
            async with (
                run_in_background(takeover.run()),
                run_in_background(register_changes()),
            ):
                yield membership
        finally:
            await takeover.announce_leave()
            await host.drain(settings.drain_grace_s)


def describe_host(
    host: TaskHost,
    *,
    address: str,
    services: Sequence[str] = (),
    readiness: AgentReadiness | None = None,
) -> registry_service_pb2.Host:
    """Return the registration of a host. The host's id is the id of its own journal."""
    return registry_service_pb2.Host(
        host_id=host.journal.id,
        address=address,
        journal_ids=host.journals.ids,
        store_id=host.journals.store_id,
        services=services,
        load=describe_load(host),
        agents=[
            registry_service_pb2.AgentRegistration(
                card=agent.card,
                direct_replies=agent.direct_replies,
                routable=agent.routable,
                extended_skills=agent.extended_skills,
                message_types=agent.message_types,
                card_pending=agent.card_pending,
                breaker=agent.breaker_state,
                kind=agent.kind,
            )
            for agent in host.agents.values()
            if readiness is None or readiness.is_ready(agent.card.name)
        ],
    )


def describe_load(host: TaskHost) -> registry_service_pb2.HostLoad:
    """Return the load of a host, by which callers choose among the replicas of an agent."""
    return registry_service_pb2.HostLoad(
        open_turns=host.open_turns, refuses_tasks=not host.journals.accepts_tasks
    )


def add_host_services(server: MeshServer, host: TaskHost) -> None:
    """Add the services that every host has."""
    server.add_message_service(host)
    server.add_task_service(host)
    server.add_artifact_service(host)
    server.add_webhook_service(host)


_STOP_GRACE_S = 1.0


@asynccontextmanager
async def join_mesh(
    build_agents: Callable[[Directory], Sequence[Agent]], settings: Settings
) -> AsyncIterator[ServiceStatus]:
    """Serve agents at `settings.listen` and register them on the mesh at `settings.mesh`.

    Other hosts may run the same agents: all of them take new tasks. On leaving, the host refuses
    new tasks, and open turns have `drain_grace_s` to end.

    Raises:
        ConfigurationError: the address can't be listened on, or an agent's settings are invalid.
        JournalUnavailableError: the data directory can't be used.
    """
    advertised = advertised_address(settings.listen, settings.advertise, mesh=settings.mesh.first)
    readiness = AgentReadiness()
    async with AsyncExitStack() as stack:
        credentials = await stack.enter_async_context(open_credentials(settings))
        if settings.store and credentials.identity.role is Role.AGENTS:
            problem = (
                "is for processes of the user who runs the mesh, who continue each other's tasks; "
                "join by a token of `trunkline mesh token --member`, or leave the setting out"
            )
            raise ConfigurationError("store", problem)
        channels = ChannelPool.from_settings(settings, credentials)
        directory = Directory(channels, *settings.mesh.addresses)
        agents = build_agents(directory)
        name = agents[0].card.name
        metrics = await stack.enter_async_context(export_signals(settings, name))
        target = MeshTarget(settings.mesh.addresses, credentials)
        stack.callback(configure_tracing(name, mesh=target).shutdown)
        database = await stack.enter_async_context(open_database(settings))
        audit = await stack.enter_async_context(open_audit_log(settings, database, process=name))
        await stack.enter_async_context(channels)
        await stack.enter_async_context(directory)
        journals = HostJournals(settings, database)
        host = await stack.enter_async_context(
            open_host(
                agents,
                directory=directory,
                settings=settings,
                journals=journals,
                database=database,
                readiness=readiness,
                audit=audit,
            )
        )
        server = MeshServer(credentials, policy=settings.policy, audit=audit)
        add_host_services(server, host)
        (address,) = await server.start(str(settings.listen))
        stack.push_async_callback(server.stop, _STOP_GRACE_S)
        # Calls to this process itself use its local address.
        channels.add_alias(advertised.with_bound_port(address), dial_address(address))
        membership = await stack.enter_async_context(
            open_membership(
                host,
                directory,
                address=advertised.with_bound_port(address),
                settings=settings,
                journals=journals,
                readiness=readiness,
            )
        )
        ready = [{"agent": agent.card.name, "grpc": address, **metrics} for agent in agents]
        yield ServiceStatus(
            ready,
            joined=membership.joined,
            failed=host.lost,
        )
