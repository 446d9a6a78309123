"""Opens the mesh of a test: a registry, a host and its agents on a Unix socket."""

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trunkline.agents import FunctionAgent
from trunkline.core.settings import AgentSettings, Settings
from trunkline.errors import ConfigurationError, PeerTimeoutError
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.socket_folder import socket_address
from trunkline.processes.database import open_database
from trunkline.processes.hosting import (
    AgentReadiness,
    add_host_services,
    open_host,
    open_membership,
)
from trunkline.processes.journals import HostJournals
from trunkline.tasks.agent import Agent

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel


@dataclass(frozen=True, slots=True)
class BundledAgents:
    """The bundled agents of a test's mesh, and the models of all its agents."""

    names: Sequence[str]
    models: Mapping[str, "BaseChatModel"]
    """Chat models by the names of the agents that use them."""

    def with_model(self, agent: Agent) -> Agent:
        """Return the agent with its model from `models`; unchanged without one.

        Raises:
            ConfigurationError: the agent has a model here, but uses none.
        """
        chat = self.models.get(agent.card.name)
        if chat is None:
            return agent
        from trunkline.agents.reasoning import ReasoningAgent
        from trunkline.agents.reasoning.model_results import ModelResults
        from trunkline.agents.reasoning.models import Model

        model = Model.from_chat_model(chat)
        if isinstance(agent, ReasoningAgent):
            return agent.with_model(model)
        if isinstance(agent, FunctionAgent) and not agent.kind:
            return replace(agent, model=ModelResults(model))
        raise ConfigurationError(f"agent {agent.card.name!r}", "it reasons with no model")


def build_settings(
    data_dir: Path, options: Mapping[str, Mapping[str, object]], overrides: Mapping[str, Any]
) -> Settings:
    """Return the settings of a test's mesh.

    `options` has the options of agents by their names. `overrides` are checked and converted like
    values of flags, so a path may be a text.

    Raises:
        ConfigurationError: an override is unknown or invalid.
    """
    settings = Settings()
    if overrides:
        # pydantic-settings takes longer to load than a mesh to start.
        from trunkline.core.settings.sources import read_settings

        settings = read_settings(flags=overrides, environment={}, file=None)
    if "drain_grace_s" not in overrides:
        # Without a grace period, a test ends at once while turns still run.
        settings = replace(settings, drain_grace_s=0.0)
    if "capture_content" not in overrides:
        # A failure is then named with its whole text.
        settings = replace(settings, capture_content=True)
    settings = replace(settings, data_dir=data_dir)
    tables = dict(settings.agent_options)
    for name, table in options.items():
        tables[name] = replace(tables.get(name, AgentSettings()), options=table)
    return replace(settings, agent_options=tables)


@asynccontextmanager
async def open_mesh(
    agents: Sequence[Agent], bundled: BundledAgents, settings: Settings
) -> AsyncIterator[tuple[Directory, Set[str]]]:
    """Serve agents and bundled agents until the block ends; yield a directory and all names.

    Raises:
        ConfigurationError: a name is unknown or used twice, or a setting is not valid.
    """
    readiness = AgentReadiness()
    async with AsyncExitStack() as stack:
        local = stack.enter_context(socket_address())
        channels = ChannelPool.from_settings(settings, None)
        directory = Directory(channels, local)
        await stack.enter_async_context(channels)
        server = MeshServer()
        server.add_registry(await stack.enter_async_context(RegistryServicer(settings.lease_s)))
        database = await stack.enter_async_context(open_database(settings))
        tools: AbstractAsyncContextManager[object] = nullcontext()
        if bundled.names or settings.mcp_file is not None:
            # These import LangGraph and MCP, which tests without agents of plugins or tools do not
            # need.
            from trunkline.agents.plugins import load_plugins
            from trunkline.processes.agents import build_agents
            from trunkline.processes.tools import add_tool_adapter, load_mcp_config

            plugins = load_plugins() if bundled.names else {}
            config = load_mcp_config(settings, plugins)
            tools = add_tool_adapter(server, config, settings, directory, database=database)
            built = build_agents(
                settings, config, directory, plugins=plugins, names=bundled.names, others=agents
            )
            agents = built
        agents = [bundled.with_model(agent) for agent in agents]
        if unknown := sorted(set(bundled.models) - {agent.card.name for agent in agents}):
            raise ConfigurationError(f"models[{unknown[0]!r}]", "the mesh has no such agent")
        journals = HostJournals(settings, database)
        hosts = await stack.enter_async_context(
            open_host(
                agents,
                directory=directory,
                settings=settings,
                journals=journals,
                database=database,
                readiness=readiness,
            )
        )
        add_host_services(server, hosts)
        await server.start(local)
        stack.push_async_callback(server.stop, 0)
        await stack.enter_async_context(tools)
        await stack.enter_async_context(directory)
        await stack.enter_async_context(
            open_membership(
                hosts,
                directory,
                address=local,
                settings=settings,
                journals=journals,
                services=server.services,
                readiness=readiness,
            )
        )
        yield directory, {agent.card.name for agent in agents}


async def wait_for_agents(directory: Directory, names: Set[str], *, timeout_s: float) -> None:
    """Wait until all agents have joined the mesh; remote ones join when they can be reached.

    Raises:
        TimeoutError: an agent is missing.
    """
    try:
        await directory.wait_until(
            lambda known: names <= set(known.list_agents()), timeout_s=timeout_s
        )
    except PeerTimeoutError:
        missing = ", ".join(sorted(names - set(directory.list_agents())))
        text = (
            f"not on the mesh after {timeout_s:g} s: {missing}; check that remote agents can be "
            "reached"
        )
        raise TimeoutError(text) from None
