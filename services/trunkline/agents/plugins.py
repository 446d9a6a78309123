"""Agents of installed packages, declared in the entry-point group `trunkline.agents`.

A package that declares such an entry point has its agent on every mesh of its environment:

    [project.entry-points."trunkline.agents"]
    weather = "my_weather.agent:plugin"

The entry point's name is the agent's name. It refers to an `AgentPlugin`, or to an agent made by
`@agent` if the plugin has nothing else. Commands of the command line have their own group,
`trunkline.commands`, so that listing the commands loads no agent. Its entry points refer to a
`typer.Typer`, and their names are the commands' names.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic

from trunkline.agents.authoring import FunctionAgent
from trunkline.core.settings import AGENT_PLUGIN_GROUP, Settings
from trunkline.errors import ConfigurationError
from trunkline.tasks.context import SettingsT
from trunkline.tools.config import ServerConfig, ServerOverlay
from trunkline.v1 import agent_card_pb2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServer:
    """An MCP server of a plugin, as the command that starts it on stdio."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of its process. `${NAME}` stands for a variable of the tool adapter."""
    idle_s: float | None = None
    """Seconds without calls after which its process ends until the next call. Such a process also
    starts at its first use and not with the mesh. By default it starts with the mesh and stays.
    Only for servers that remember nothing between calls."""

    def build_config(self) -> ServerConfig:
        """Return the entry that this would be in an `mcpServers` file."""
        return ServerConfig(
            command=self.command,
            args=list(self.args),
            env=dict(self.env),
            trunkline=ServerOverlay(idle_s=self.idle_s),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningAgentSpec:
    """An agent that reasons with a model and calls the tools of MCP servers.

    The mesh makes the agent: its settings decide on the model and on the tools allowed.
    """

    name: str
    description: str
    skills: Sequence[agent_card_pb2.AgentSkill]
    """Their tags decide which requests a supervisor routes to the agent."""
    servers: Sequence[str]
    """Names of the MCP servers whose tools the agent may call."""
    version: str = "1"
    instructions: str = ""
    """Instructions for models, beside the card's description. The built-in model ignores them."""
    repeatable: bool = False
    """A turn may run again from its start if its host dies: no tool changes anything."""
    list_more_skills: Callable[[Settings], Sequence[agent_card_pb2.AgentSkill]] | None = None
    """Returns the skills that it has beside `skills` at the moment, by the mesh's data. It is
    called every two seconds while the agent is served, so it must be fast."""

    def build_card(self) -> agent_card_pb2.AgentCard:
        """Return the card, without interfaces and capabilities."""
        return agent_card_pb2.AgentCard(
            name=self.name,
            description=self.description,
            version=self.version,
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=self.skills,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginContext(Generic[SettingsT]):
    """The settings that the servers of a plugin may depend on."""

    settings: SettingsT
    """The settings of the plugin, if it has a `settings_type`."""
    mesh: Settings
    """The settings of the mesh."""
    configured_servers: frozenset[str] = frozenset()
    """Names of the servers in the operator's `mcpServers` file."""


def _no_servers(_: PluginContext[Any]) -> Mapping[str, McpServer]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentPlugin(Generic[SettingsT]):
    """An agent, the MCP servers that it uses, and its settings.

    The agent is on the mesh only if `servers` returns every server that it uses, so a plugin whose
    settings are incomplete returns none. An entry of the operator's `mcpServers` file replaces the
    plugin's server of the same name; an entry with the same command adds its arguments and
    variables to it.
    """

    agent: FunctionAgent | ReasoningAgentSpec
    servers: Callable[[PluginContext[SettingsT]], Mapping[str, McpServer]] = _no_servers
    """Returns the servers by name. Raises ConfigurationError if the settings make no sense."""
    settings_type: type[SettingsT] | None = None
    """A pydantic model or a dataclass: the table of `trunkline.toml` that has the plugin's name,
    and over it the variables TRUNKLINE_NAME_FIELD."""

    @property
    def agent_name(self) -> str:
        """The name on the agent's card."""
        agent = self.agent
        return agent.name if isinstance(agent, ReasoningAgentSpec) else agent.card.name

    @property
    def required_servers(self) -> Sequence[str]:
        """Names of the servers without which the agent is not on the mesh."""
        return self.agent.servers if isinstance(self.agent, ReasoningAgentSpec) else ()


def load_plugins() -> dict[str, AgentPlugin[Any]]:
    """Load the installed plugins, sorted by name.

    A plugin that can't be used is logged as `plugin.ignored`, and the others are loaded.
    """
    plugins: dict[str, AgentPlugin[Any]] = {}
    points = entry_points(group=AGENT_PLUGIN_GROUP)
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        try:
            if point.name in plugins:
                raise ConfigurationError(point.value, "another package has a plugin of this name")
            plugins[point.name] = _load(point)
        # A package may raise anything while it is imported.
        except Exception as error:  # noqa: BLE001
            log_ignored_plugin(point.name, error)
    return plugins


def log_ignored_plugin(name: str, error: Exception) -> None:
    """Log in one line that a plugin is ignored, and the reason."""
    problem = " ".join(f"{type(error).__name__}: {error}".split())
    logger.error("plugin.ignored", extra={"plugin": name, "problem": problem})


def _load(point: EntryPoint) -> AgentPlugin[Any]:
    loaded = point.load()
    plugin = AgentPlugin(agent=loaded) if isinstance(loaded, FunctionAgent) else loaded
    if not isinstance(plugin, AgentPlugin):
        raise ConfigurationError(point.value, "is neither an AgentPlugin nor an agent")
    if point.name == "supervisor":
        raise ConfigurationError(point.value, "the mesh has an agent of this name already")
    if plugin.agent_name != point.name:
        problem = f"its agent is named {plugin.agent_name!r}; name the entry point like the agent"
        raise ConfigurationError(point.value, problem)
    return plugin
