"""The tool adapter: it serves the MCP servers of the configuration and of plugins over gRPC."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from trunkline.agents.plugins import (
    AgentPlugin,
    PluginContext,
    load_plugins,
    log_ignored_plugin,
)
from trunkline.core.identity import open_credentials
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import Settings, advertised_address, load_plugin_settings
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import BreakerSettings, ChannelPool, Directory
from trunkline.mesh.client.artifacts import ArtifactClient
from trunkline.mesh.registry import Membership
from trunkline.mesh.server import MeshServer
from trunkline.observe.audit import open_audit_log
from trunkline.observe.signal_exports import export_signals
from trunkline.observe.traces import MeshTarget, configure_tracing
from trunkline.processes.database import find_small_files, open_database
from trunkline.processes.registry import STOP_GRACE_S
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import AdapterSettings, McpConfig, agents_from_config, load_config
from trunkline.tools.sign_in_files import SignInFiles
from trunkline.tools.span_intake_servicer import SpanIntake
from trunkline.tools.tool_servicer import SERVICE, ToolServicer
from trunkline.tools.used_approvals import (
    PostgresUsedApprovals,
    SqliteUsedApprovals,
    UsedApprovals,
)
from trunkline.v1 import registry_service_pb2, tool_service_pb2_grpc

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase


@asynccontextmanager
async def serve_tools(settings: Settings) -> AsyncIterator[ServiceStatus]:
    """Serve the tool adapter in this process, and nothing else.

    Raises:
        ConfigurationError: the address can't be listened on, the data directory can't be used, or
            settings of a plugin are invalid.
    """
    advertised = advertised_address(settings.listen, settings.advertise, mesh=settings.mesh.first)
    async with AsyncExitStack() as stack:
        metrics = await stack.enter_async_context(export_signals(settings, "tools"))
        database = await stack.enter_async_context(open_database(settings))
        audit = await stack.enter_async_context(open_audit_log(settings, database, process="tools"))
        credentials = await stack.enter_async_context(open_credentials(settings))
        target = MeshTarget(settings.mesh.addresses, credentials)
        stack.callback(configure_tracing("tools", mesh=target).shutdown)
        channels = ChannelPool.from_settings(settings, credentials)
        await stack.enter_async_context(channels)
        server = MeshServer(credentials, policy=settings.policy, audit=audit)
        directory = Directory(channels, *settings.mesh.addresses)
        intake = await stack.enter_async_context(
            SpanIntake(credentials, lambda: channels.get(directory.find_registry().peer))
        )
        adapter = add_tool_adapter(
            server,
            load_mcp_config(settings),
            settings,
            directory,
            database=database,
            intake=intake,
        )
        (address,) = await server.start(str(settings.listen))
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        await stack.enter_async_context(directory)
        await stack.enter_async_context(adapter)
        member = registry_service_pb2.Host(
            # A host without a journal is identified by its address: a restarted one replaces it.
            host_id=f"tools@{advertised.with_bound_port(address)}",
            address=advertised.with_bound_port(address),
            services=server.services,
        )
        membership = Membership(directory.registries, member)
        await stack.enter_async_context(membership)
        ready = {"service": "tools", "grpc": address, **metrics}
        yield ServiceStatus([ready], joined=membership.joined)


def load_mcp_config(
    settings: Settings, plugins: Mapping[str, AgentPlugin[Any]] | None = None
) -> McpConfig:
    """Return the MCP servers of the operator's file and of plugins.

    `plugins` are by default all installed ones. A plugin that fails to list its servers is logged
    and ignored.

    Raises:
        ConfigurationError: the file, an entry of it, or the settings of a plugin are invalid.
    """
    config = load_config(settings.mcp_file)
    configured = config.configured
    for name, plugin in (load_plugins() if plugins is None else plugins).items():
        settings_type = plugin.settings_type
        plugin_settings = (
            None if settings_type is None else load_plugin_settings(name, settings_type, settings)
        )
        context = PluginContext(
            settings=plugin_settings, mesh=settings, configured_servers=configured
        )
        try:
            servers = {
                key: server.build_config() for key, server in plugin.servers(context).items()
            }
        except ConfigurationError:
            raise
        # The code of a package may raise anything.
        except Exception as error:  # noqa: BLE001
            log_ignored_plugin(name, error)
            continue
        config = config.add_plugin_servers(name, servers)
    return config


def add_tool_adapter(
    server: MeshServer,
    config: McpConfig,
    settings: Settings,
    directory: Directory,
    *,
    database: "PostgresDatabase | None" = None,
    intake: SpanIntake | None = None,
) -> ToolAdapter:
    """Add the tool adapter to a server. Enter the returned adapter while the server runs.

    The adapter stores content that is too large for a tool's result on the host of the task, which
    it finds by the directory. Without a database, used approvals are in the data directory.
    MCP servers send their spans to `intake`, if there is one.
    They start in the folder of the operator's file or else in the data directory, because many
    commands, such as npx, run programs of the folder, and the current folder may not be trusted.
    """
    file = settings.mcp_file
    adapter = ToolAdapter(
        config,
        settings=AdapterSettings(
            folder=settings.data_dir if file is None else file.parent,
            breaker=BreakerSettings.from_settings(settings),
        ),
        intake=intake,
        sign_ins=SignInFiles(settings, find_small_files(settings, database)),
    )
    server.add_service(
        SERVICE,
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server,
        ToolServicer(
            adapter,
            ApprovalGate(server.statements, _find_used_approvals(settings, database)),
            agents=map_server_agents(config),
            options=settings.agent_options,
            artifacts=ArtifactClient(directory),
            audit=server.audit,
        ),
    )
    return adapter


def _find_used_approvals(settings: Settings, database: "PostgresDatabase | None") -> UsedApprovals:
    if database is None:
        return SqliteUsedApprovals(settings.data_dir)
    from trunkline.core.postgres.small_files import PostgresFiles

    return PostgresUsedApprovals(PostgresFiles(database))


def map_server_agents(config: McpConfig) -> Mapping[str, Sequence[str]]:
    """Return the names of the agents that use each MCP server's tools, by the server's name."""
    users = {server: [agent] for server, agent in config.plugin_servers.items()}
    for spec in agents_from_config(config):
        for server in spec.servers:
            users.setdefault(server, []).append(spec.name)
    return users
