"""The agents of a mesh: supervisors, plugins, agents of tools and outside, and the user's."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from trunkline.a2a_client.remote_agent import build_remote_agents
from trunkline.agents.calls.tool_source import (
    MeshTools,
    ToolSource,
)
from trunkline.agents.followed_skills import follow_skills, follow_tools
from trunkline.agents.plugins import AgentPlugin, ReasoningAgentSpec, load_plugins
from trunkline.agents.reasoning import ModelChoice, ReasoningAgent
from trunkline.agents.reasoning import prewarm as prewarm_reasoning
from trunkline.agents.reasoning.models import RULES, open_model
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import AgentSettings, Settings, SupervisorSettings
from trunkline.embeddings import EmbeddingModel
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import Directory, run_in_background
from trunkline.messages.addresses import RESERVED_NAMES
from trunkline.processes.hosting import join_mesh
from trunkline.processes.participants import build_participants
from trunkline.processes.run import load_agent
from trunkline.processes.supervisor_names import check_agent_names, check_circles, check_names
from trunkline.processes.tools import load_mcp_config
from trunkline.rules.planner import RulesPlanner
from trunkline.supervisor import ChildLimits, ModelPlanner, Planner, Supervisor
from trunkline.supervisor.example_index import ExampleIndex
from trunkline.tasks.agent import Agent
from trunkline.tools.config import AgentSpec, McpConfig, agents_from_config
from trunkline.v1.registry_service_pb2 import AgentRegistration

SUPERVISOR: Final = "supervisor"


@asynccontextmanager
async def serve_agents(settings: Settings, names: Sequence[str]) -> AsyncIterator[ServiceStatus]:
    """Serve only the named agents and the agents of the settings in this process.

    Raises:
        ConfigurationError: there is no such agent, or the address can't be listened on.
        JournalUnavailableError: the data directory can't be used.
    """
    built: list[Agent] = []
    plugins = load_plugins()
    config = load_mcp_config(settings, plugins)

    def build(directory: Directory) -> Sequence[Agent]:
        built.extend(build_agents(settings, config, directory, plugins=plugins, names=names))
        return built

    async with AsyncExitStack() as stack:
        serving = await stack.enter_async_context(join_mesh(build, settings))
        if settings.prewarm:
            await stack.enter_async_context(run_in_background(prewarm(built)))
        yield serving


def build_agents(
    settings: Settings,
    config: McpConfig,
    directory: Directory,
    *,
    plugins: Mapping[str, AgentPlugin[Any]],
    names: Sequence[str] | None = None,
    others: Sequence[Agent] = (),
) -> list[Agent]:
    """Build the named agents, or all if `names` is None; then `others` and configured agents.

    Agents of the settings may be named, too.

    Raises:
        ConfigurationError: an agent is unknown, two agents have the same name, there are no agents,
            supervisors ask in a circle, a name is reserved, or, without `names`, the settings name
            an unknown agent.
    """
    check_agent_names(settings)
    check_circles(settings)
    builders = _list_builders(settings, config, directory, plugins)
    loaded, brought = _load_others(settings)
    given = [*others, *loaded]
    known = {agent.card.name for agent in (*given, *brought)}
    agents: list[Agent] = []
    for name in builders if names is None else dict.fromkeys(names):
        if name in builders:
            agents.append(builders[name]())
        elif name not in known:
            problem = f"no such agent; there are: {', '.join(builders)}; --agent loads others"
            raise ConfigurationError(f"agent {name!r}", problem)
    agents += given
    # Agents of the mesh replace agents of the same name that a workflow brings.
    taken = {agent.card.name for agent in agents} | set(settings.joining)
    agents += [agent for agent in brought if agent.card.name not in taken]
    all_names = [agent.card.name for agent in agents]
    for name in all_names:
        if all_names.count(name) > 1:
            raise ConfigurationError(f"agent {name!r}", "there are two of this name; rename one")
    if not agents:
        raise ConfigurationError("agents", f"name some of: {', '.join(builders)}; or give --agent")
    if names is None:
        # A plugin whose tools are not configured may have a table.
        check_names(settings, {*all_names, *plugins})
    inherit_skills_of(agents)
    return agents


def check_default_agent(settings: Settings, names: Sequence[str]) -> None:
    """Check that the agent that requests go to by default is one of `names`.

    Raises:
        ConfigurationError: it is not.
    """
    if settings.default_agent not in names:
        problem = f"there is no agent {settings.default_agent!r}, only {', '.join(names)}"
        raise ConfigurationError("default_agent (--default)", problem)


def _load_others(settings: Settings) -> tuple[list[Agent], Sequence[Agent]]:
    """Load the agents and workflows of the settings, and the agents that the workflows bring."""
    loaded: list[Agent] = [load_agent(spec) for spec in settings.agents]
    if not settings.workflows:
        return loaded, ()
    from trunkline.workflows.loading import load_workflow_agents
    from trunkline.workflows.plugins import load_plugin_agents

    loaded += load_workflow_agents(settings.workflows)
    brought = load_plugin_agents(settings.workflows).values()
    return loaded, [agent for agents in brought for agent in agents]


def map_brought_agents(agents: Sequence[Agent], settings: Settings) -> Mapping[str, str]:
    """Return the workflows that brought some of the agents, by the agents' names."""
    if not settings.workflows:
        return {}
    from trunkline.workflows.plugins import load_plugin_agents

    return {
        brought.card.name: workflow
        for workflow, others in load_plugin_agents(settings.workflows).items()
        for brought in others
        if any(agent is brought for agent in agents)
    }


def inherit_skills_of(agents: Sequence[Agent]) -> None:
    """Give supervisors the skills of the agents of this process before they are registered."""
    supervisors = [agent for agent in agents if isinstance(agent, Supervisor)]
    # Skills rise by one level of supervisors each time.
    for _ in supervisors:
        known = {
            agent.card.name: AgentRegistration(card=agent.card, routable=agent.routable)
            for agent in agents
        }
        for supervisor in supervisors:
            supervisor.inherit(known)


async def prewarm(agents: Sequence[Agent]) -> None:
    """Load the models and libraries that the agents' first tasks need."""
    if any(isinstance(agent, ReasoningAgent) for agent in agents):
        await prewarm_reasoning()
    for agent in agents:
        if isinstance(agent, ReasoningAgent):
            await agent.load()
        if isinstance(agent, Supervisor):
            await agent.prewarm()


def build_reasoning_agent(
    spec: ReasoningAgentSpec, tools: ToolSource, model: ModelChoice | None = None
) -> ReasoningAgent:
    """Build the agent of a plugin's spec. Without a model, it uses the built-in one."""
    card = spec.build_card()
    return ReasoningAgent(
        card,
        servers=spec.servers,
        tools=tools,
        model=model,
        instructions=spec.instructions,
        repeatable=spec.repeatable,
        lifespan=follow_skills(card, spec.list_more_skills) if spec.list_more_skills else None,
    )


def _list_builders(
    settings: Settings,
    config: McpConfig,
    directory: Directory,
    plugins: Mapping[str, AgentPlugin[Any]],
) -> dict[str, Callable[[], Agent]]:
    """Return the functions that build the agents that can be named, by name."""

    def choose_tools(name: str) -> ToolSource:
        return MeshTools(directory, settings.agent_options.get(name))

    choose_model = partial(ModelChoice.for_agent, settings)

    builders: dict[str, Callable[[], Agent]] = {
        SUPERVISOR: partial(_build_supervisor, settings, directory, SUPERVISOR)
    }
    for name, plugin in plugins.items():
        agent = plugin.agent
        if not set(plugin.required_servers) <= config.plugin_servers.keys():
            continue
        if isinstance(agent, ReasoningAgentSpec):
            told = replace(agent, instructions=_find_instructions(settings, name, agent))
            builders[name] = partial(
                build_reasoning_agent, told, choose_tools(name), choose_model(name)
            )
        else:
            builders[name] = partial(_return_agent, agent)
    for name in settings.supervisors:
        if name in builders and name != SUPERVISOR:
            problem = "an installed agent has this name; choose another"
            raise ConfigurationError(f"[supervisor.{name}]", problem)
        builders[name] = partial(_build_supervisor, settings, directory, name)
    for spec in (*_list_server_specs(settings, config), *_list_table_specs(settings, config)):
        tools = choose_tools(spec.name)
        build = partial(_build_tools_agent, spec, tools, choose_model(spec.name))
        _add_builder(builders, spec.name, build)
    for agent in (*build_remote_agents(settings), *build_participants(settings)):
        _add_builder(builders, agent.card.name, partial(_return_agent, agent))
    return builders


def _find_instructions(settings: Settings, name: str, spec: ReasoningAgentSpec | AgentSpec) -> str:
    """Return the instructions for the model of an agent: of its package, then of its table."""
    options = settings.agent_options.get(name, AgentSettings())
    return " ".join(filter(None, (spec.instructions, options.instructions)))


def _list_server_specs(settings: Settings, config: McpConfig) -> Iterator[AgentSpec]:
    """Yield the agents of configured MCP servers.

    Raises:
        ConfigurationError: two agents have the same name, or a name is reserved.
    """
    for spec in agents_from_config(config):
        if spec.name in RESERVED_NAMES:
            problem = f"no agent can be named {spec.name!r}; set trunkline.agent.name"
            raise ConfigurationError(f"mcpServers.{spec.servers[0]}", problem)
        yield replace(spec, instructions=_find_instructions(settings, spec.name, spec))


def _list_table_specs(settings: Settings, config: McpConfig) -> Iterator[AgentSpec]:
    """Yield the agents that tables `[agent.NAME]` define.

    Raises:
        ConfigurationError: a table has no description, or names an MCP server that is not
            configured.
    """
    for name, options in settings.agent_options.items():
        if not options.defines_agent:
            if options.servers or options.tags or options.examples:
                problem = (
                    "give a description too: without one, servers, tags and examples are no agent"
                )
                raise ConfigurationError(f"[agent.{name}]", problem)
            continue
        for server in options.servers:
            if server not in config.servers:
                known = ", ".join(config.servers) or "none"
                problem = f"there is no MCP server {server!r}; there are: {known}"
                raise ConfigurationError(f"[agent.{name}] servers", problem)
        yield AgentSpec(
            name=name,
            description=options.description,
            tags=options.tags,
            examples=options.examples,
            servers=options.servers,
            fingerprint=" ".join(config.servers[each].fingerprint() for each in options.servers),
            instructions=options.instructions,
        )


def _add_builder(
    builders: dict[str, Callable[[], Agent]], name: str, build: Callable[[], Agent]
) -> None:
    if name in builders:
        raise ConfigurationError(f"agent {name!r}", "there are two of this name; rename one")
    builders[name] = build


def _build_tools_agent(spec: AgentSpec, tools: ToolSource, model: ModelChoice) -> ReasoningAgent:
    agent = ReasoningAgent(
        spec.build_card(),
        servers=spec.servers,
        tools=tools,
        model=model,
        instructions=spec.instructions,
    )
    if spec.servers:
        agent.lifespan = follow_tools(agent, spec, tools)
    return agent


def _return_agent(agent: Agent) -> Agent:
    return agent


def _build_supervisor(settings: Settings, directory: Directory, name: str) -> Supervisor:
    options = settings.supervisors.get(name, SupervisorSettings())
    agent_options = settings.agent_options.get(name, AgentSettings())
    choice = ModelChoice.for_planner(settings, options.model or agent_options.model)
    embeddings = EmbeddingModel.from_settings(settings.embeddings, settings.models)
    rules = RulesPlanner(ExampleIndex(embeddings) if embeddings else None)
    planner: Planner = rules
    if choice.name != RULES:
        fallbacks = tuple(name for name in choice.fallbacks if name != RULES)
        model = open_model(replace(choice, fallbacks=fallbacks))
        fallback = rules if RULES in choice.fallbacks else None
        planner = ModelPlanner(model, instructions=options.instructions, fallback=fallback)
    return Supervisor(
        directory,
        name=name,
        options=options,
        planner=planner,
        limits=ChildLimits.from_settings(settings),
        callers=settings.policy.callers,
    )
