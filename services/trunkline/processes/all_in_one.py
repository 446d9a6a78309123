"""A whole mesh in one process: `trunkline up`."""

import logging
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager

from trunkline.agents.plugins import load_plugins
from trunkline.core.identity import open_credentials
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import Settings, advertised_address, dial_address
from trunkline.mesh.client import ChannelPool, Directory, run_in_background
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.socket_folder import socket_address
from trunkline.observe.audit import open_audit_log
from trunkline.observe.signal_exports import export_signals
from trunkline.processes.agents import (
    build_agents,
    check_default_agent,
    map_brought_agents,
    prewarm,
)
from trunkline.processes.bridge import check_addresses, open_bridge
from trunkline.processes.database import find_small_files, open_database, open_join_records
from trunkline.processes.hosting import (
    AgentReadiness,
    add_host_services,
    open_host,
    open_membership,
)
from trunkline.processes.inventory import describe_inventory
from trunkline.processes.journals import HostJournals
from trunkline.processes.messaging import add_messages
from trunkline.processes.registry import (
    STOP_GRACE_S,
    add_identity_service,
    add_registry,
    reserve_mesh_address,
)
from trunkline.processes.tools import add_tool_adapter, load_mcp_config, map_server_agents
from trunkline.processes.webhook_secret import load_or_create_secret
from trunkline.supervisor import Supervisor
from trunkline.tasks.agent import Agent
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig
from trunkline.tools.span_intake_servicer import SpanIntake

logger = logging.getLogger(__name__)

# The longest wait until the registry of this process lists the default agent.
_READY_TIMEOUT_S = 30.0


@asynccontextmanager
async def open_mesh(settings: Settings) -> AsyncIterator[ServiceStatus]:
    """Run a mesh in the `async with` block. All services are ready when the block begins.

    When it ends, new tasks are refused, and open turns have `drain_grace_s` to end. Then all child
    processes are stopped and all files closed.

    Raises:
        ConfigurationError: an address, a file or an agent is wrong.
        JournalUnavailableError: the data directory can't be used.
    """
    check_addresses(settings)
    plugins = load_plugins()
    config = load_mcp_config(settings, plugins)
    async with AsyncExitStack() as stack:
        metrics = await stack.enter_async_context(export_signals(settings, "trunkline"))
        database = await stack.enter_async_context(open_database(settings))
        audit = await stack.enter_async_context(
            open_audit_log(settings, database, process="trunkline")
        )
        unix_address = stack.enter_context(socket_address())
        settings = stack.enter_context(reserve_mesh_address(settings))
        credentials = await stack.enter_async_context(open_credentials(settings, runs_mesh=True))
        channels = ChannelPool.from_settings(settings, credentials)
        directory = Directory(channels, unix_address, *settings.mesh.addresses[1:])
        readiness = AgentReadiness()
        agents = build_agents(settings, config, directory, plugins=plugins)
        names = [agent.card.name for agent in agents]
        check_default_agent(settings, names)
        server = MeshServer(credentials, policy=settings.policy, audit=audit)
        records = await open_join_records(settings, database)
        await stack.enter_async_context(
            add_registry(
                server, settings, credentials, records, database, name="trunkline", audit=audit
            )
        )
        await stack.enter_async_context(channels)
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
        add_host_services(server, host)
        (mesh_address, _) = server.bind(str(settings.mesh.first), unix_address)
        await stack.enter_async_context(
            add_identity_service(server, settings, credentials, records, own=settings.mesh.first)
        )
        dialed = dial_address(mesh_address)
        advertised = _advertise(settings, dialed)
        intake = SpanIntake(credentials, lambda: channels.get(directory.find_registry().peer))
        await stack.enter_async_context(intake)
        adapter = add_tool_adapter(
            server, config, settings, directory, database=database, intake=intake
        )
        _start_servers_at_load(agents, adapter, config)
        messages = add_messages(server, settings, directory, database)
        messaging_mode = await stack.enter_async_context(messages)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        # Closed before the server, to which MCP servers send their last spans.
        await stack.enter_async_context(adapter)
        # Calls from this process to its own host use the Unix socket.
        channels.add_alias(advertised, unix_address)
        await stack.enter_async_context(directory)
        files = find_small_files(settings, database)
        secret = settings.webhook_secret or await load_or_create_secret(settings, files)
        bridge = open_bridge(
            directory, settings, files, webhook_secret=secret, audit=audit, service="trunkline"
        )
        bridge_addresses = await stack.enter_async_context(bridge)
        membership = await stack.enter_async_context(
            open_membership(
                host,
                directory,
                address=advertised,
                settings=settings,
                journals=journals,
                services=server.services,
                messaging_mode=messaging_mode,
                readiness=readiness,
            )
        )
        if readiness.is_ready(settings.default_agent):
            await directory.wait_until(
                lambda known: settings.default_agent in known.list_agents(),
                timeout_s=_READY_TIMEOUT_S,
            )
        if settings.prewarm:
            await stack.enter_async_context(run_in_background(prewarm(agents)))
        yield ServiceStatus(
            [
                {
                    "http": bridge_addresses["http"],
                    "mesh": mesh_address,
                    "a2a-grpc": bridge_addresses["a2a-grpc"],
                    **metrics,
                }
            ],
            joined=membership.joined,
            is_in_other_mesh=False,
            failed=host.lost,
            inventory=describe_inventory(
                settings,
                config,
                names,
                plugins,
                workflows=[agent.card.name for agent in agents if agent.is_pausable],
                brought=map_brought_agents(agents, settings),
            ),
        )


async def check_mesh(settings: Settings) -> None:
    """Check the addresses, agents and MCP servers of the settings as `open_mesh` does.

    Nothing is started. The modules of the user's agents are imported.

    Raises:
        ConfigurationError: an address, a file or an agent is wrong.
    """
    check_addresses(settings)
    plugins = load_plugins()
    config = load_mcp_config(settings, plugins)
    # The server is never opened, so the socket has no listener.
    directory = Directory(ChannelPool(), "unix:none")
    agents = build_agents(settings, config, directory, plugins=plugins)
    check_default_agent(settings, [agent.card.name for agent in agents])


def _start_servers_at_load(
    agents: Sequence[Agent], adapter: ToolAdapter, config: McpConfig
) -> None:
    """Start the MCP servers that a request is likely to need, while LangGraph loads."""
    users = map_server_agents(config)

    def start(planned: Set[str]) -> None:
        if names := [name for name in users if not planned.isdisjoint(users[name])]:
            adapter.note_use(names)

    for agent in agents:
        if isinstance(agent, Supervisor):
            agent.on_load = start


def _advertise(settings: Settings, dialed: str) -> str:
    """Return the address at which other processes reach the mesh's agents."""
    mesh = settings.mesh.first
    if settings.advertise or not mesh.is_wildcard:
        advertised = advertised_address(mesh, settings.advertise, mesh=mesh)
        return advertised.with_bound_port(dialed)
    problem = "other machines can't connect to its agents; give --advertise HOST"
    logger.warning("mesh.not_advertised", extra={"problem": problem})
    return dialed
