"""Composes a whole mesh in one process: `trunkline up`."""

import gc
import logging
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp

from trunkline.agents.currency import agent as currency_agent
from trunkline.agents.echo import echo
from trunkline.agents.hosting import describe_host, open_host, serve_host
from trunkline.agents.loading import load_agent
from trunkline.agents.math import agent as math_agent
from trunkline.client import Channels, Directory, RegistryClient, running
from trunkline.errors import ConfigurationError
from trunkline.reasoning import MeshTools, ReasoningAgent
from trunkline.reasoning import prewarm as prewarm_reasoning
from trunkline.registry import Membership, RegistryServicer
from trunkline.server import MeshServer
from trunkline.settings import HostPort, Settings, check_exposure
from trunkline.supervisor import Supervisor
from trunkline.tasks.agent import Agent
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig, agents_from_config, load_config
from trunkline.tools.tool_servicer import ToolServicer
from trunkline.traces import OtlpServicer, SpanStore, TraceServicer, configure
from trunkline.v1 import tool_service_pb2_grpc, trace_service_pb2_grpc
from trunkline_bridge import Bridge, BridgeSettings
from trunkline_bridge.serving import serve_http

logger = logging.getLogger(__name__)

# How long a mesh may take until its own registry shows its own agents.
_READY_TIMEOUT_S = 30.0
_STOP_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh that serves."""

    http_url: str
    """Where the bridge answers A2A."""
    mesh_address: str
    """Where the mesh answers gRPC."""


@asynccontextmanager
async def open_mesh(settings: Settings) -> AsyncIterator[Mesh]:
    """Bring a mesh up for the length of a block; when entered, everything serves.

    On leaving, nothing new is taken, what runs has `drain_grace_s` to end, and every process and
    file of the mesh is closed.

    Raises:
        ConfigurationError: an address, a file or an agent is wrong.
        JournalUnavailableError: the data directory can't be used.
    """
    check_exposure(settings)
    config = _load_tools(settings)
    _prepare_folder(settings)
    async with AsyncExitStack() as stack:
        store = SpanStore(
            settings.data_dir / "traces.db", limit=settings.trace_limit, age_s=settings.trace_age_s
        )
        stack.callback(store.close)
        stack.callback(configure("trunkline", store=store).shutdown)
        channels = await stack.enter_async_context(Channels())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-"))
        local = f"unix:{folder}/mesh.sock"
        directory = Directory(channels, local)
        agents = _agents(settings, config, directory)
        host = await stack.enter_async_context(
            open_host(
                agents,
                journal_path=settings.data_dir / "journals" / "mesh.db",
                directory=directory,
                settings=settings,
            )
        )
        server = MeshServer()
        serve_host(server, host)
        registry = await stack.enter_async_context(RegistryServicer(settings.lease_s))
        server.add_registry(registry)
        (mesh_address, _) = server.bind(str(settings.mesh), local)
        adapter = ToolAdapter(config, otlp_endpoint=f"http://{_reachable(mesh_address)}")
        users = _users_of_servers(agents)
        _add_services(server, ToolServicer(adapter, agents=users), store)
        await server.start()
        stack.push_async_callback(server.stop, _STOP_GRACE_S)
        # Inside the server's life: the MCP servers send it their last spans.
        await stack.enter_async_context(adapter)
        # Calls from this process to its own host don't leave it.
        channels.alias(mesh_address, local)
        await stack.enter_async_context(directory)
        http_url = await stack.enter_async_context(_serve_bridge(directory, settings))
        stack.push_async_callback(host.drain, settings.drain_grace_s)
        member = describe_host(host, address=mesh_address, services=server.services)
        await stack.enter_async_context(Membership(RegistryClient(channels.get(local)), member))
        await directory.wait_until(
            lambda known: settings.default_agent in known.agents(), timeout_s=_READY_TIMEOUT_S
        )
        if settings.prewarm:
            await stack.enter_async_context(running(_prewarm(agents)))
        # What lives now lives as long as the mesh: later collections needn't look at it again.
        gc.freeze()
        yield Mesh(http_url, mesh_address)


def _load_tools(settings: Settings) -> McpConfig:
    """The configured MCP servers; a file that is wrong is said so and left out."""
    try:
        return load_config(settings.mcp_file)
    except ConfigurationError as error:
        logger.error("mcp.file_ignored", extra={"file": error.where, "problem": error.problem})
        return load_config()


def _reachable(address: str) -> str:
    """Where a process of this machine reaches an address that may stand for all interfaces."""
    bound = HostPort.parse(address)
    is_any = bound.host in ("0.0.0.0", "::")  # noqa: S104 - looked for, not listened on
    return str(HostPort("127.0.0.1", bound.port)) if is_any else address


def _prepare_folder(settings: Settings) -> None:
    try:
        (settings.data_dir / "journals").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"can't be used: {error.strerror}; choose another with --data"
        raise ConfigurationError(f"data directory {settings.data_dir}", problem) from error


def _agents(settings: Settings, config: McpConfig, directory: Directory) -> Sequence[Agent]:
    """The supervisor, the bundled agents, those of configured tools, and the user's."""
    tools = MeshTools(directory)
    agents: list[Agent] = [Supervisor(directory), echo, math_agent(tools), currency_agent(tools)]
    agents += [
        ReasoningAgent(spec.card(), servers=spec.servers, tools=tools)
        for spec in agents_from_config(config)
    ]
    agents += [load_agent(spec) for spec in settings.agents]
    names = [agent.card.name for agent in agents]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"agent {name!r}", "there are two of this name; rename one")
    if settings.default_agent not in names:
        problem = f"no such agent; there are: {', '.join(names)}"
        raise ConfigurationError(f"--default {settings.default_agent}", problem)
    return agents


def _users_of_servers(agents: Sequence[Agent]) -> Mapping[str, Sequence[str]]:
    """Names of the agents that may use the tools of an MCP server, by the server's name."""
    users: dict[str, list[str]] = {}
    for agent in agents:
        if isinstance(agent, ReasoningAgent):
            for name in agent.servers:
                users.setdefault(name, []).append(agent.card.name)
    return users


async def _prewarm(agents: Sequence[Agent]) -> None:
    """Load what the first question would load."""
    await prewarm_reasoning()
    for agent in agents:
        if isinstance(agent, Supervisor):
            await agent.prewarm()


def _add_services(server: MeshServer, tools: ToolServicer, store: SpanStore) -> None:
    server.add_generic(
        "trunkline.v1.ToolService",
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server,
        tools,
    )
    server.add_generic(
        "trunkline.v1.TraceService",
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        TraceServicer(store),
    )
    server.add_generic(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        otlp.add_TraceServiceServicer_to_server,
        OtlpServicer(store),
    )


@asynccontextmanager
async def _serve_bridge(directory: Directory, settings: Settings) -> AsyncIterator[str]:
    bridge = Bridge(
        directory,
        BridgeSettings(
            default_agent=settings.default_agent,
            public_url=settings.public_url,
            body_limit_bytes=settings.body_limit_bytes,
            heartbeat_s=settings.heartbeat_s,
        ),
    )
    async with serve_http(
        bridge.app, host=settings.http.host, port=settings.http.port, grace_s=2
    ) as url:
        yield url
