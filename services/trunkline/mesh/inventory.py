"""The inventory of a mesh: the loaded agents, servers and models, each with the reason.

`trunkline up` prints it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trunkline.agents.plugins import AgentPlugin
from trunkline.reasoning import ModelChoice
from trunkline.reasoning.models import RULES
from trunkline.reasoning.models.providers import find_provider
from trunkline.settings import Settings, list_installed_extras
from trunkline.tools.config import McpConfig, agents_from_config


def describe_inventory(
    settings: Settings,
    config: McpConfig,
    agents: Sequence[str],
    plugins: Mapping[str, AgentPlugin[Any]],
    *,
    workflows: Collection[str] = (),
    brought: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the agents, MCP servers, models and extras of a mesh, each with where it is from.

    `workflows` names the agents that are workflows. `brought` maps other agents to the workflows
    that brought them.
    """
    file = str(settings.mcp_file)

    origins: dict[str, str] = {
        **{name: f"for {workflow}" for name, workflow in (brought or {}).items()},
        **{name: f"[participant.{name}]" for name in settings.participants},
        **{name: f"[remote.{name}]" for name in settings.remotes},
        **{
            name: f"[agent.{name}]"
            for name, options in settings.agent_options.items()
            if options.defines_agent
        },
        **dict.fromkeys(workflows, "workflow"),
        **dict.fromkeys((spec.name for spec in agents_from_config(config)), file),
        **dict.fromkeys(plugins, "installed"),
        "supervisor": "bundled",
        **{name: f"[supervisor.{name}]" for name in settings.supervisors},
    }

    def agent_origin(name: str) -> str:
        return origins.get(name) or ", ".join(settings.agents)

    def server_origin(name: str) -> str:
        if name not in config.plugin_servers:
            return file
        purpose = f"for {config.plugin_servers[name]}"
        return f"{file}, {purpose}" if name in config.replaced else purpose

    missing = [name for name in plugins if name not in agents]
    rows = {
        "agents": _group((name, agent_origin(name)) for name in agents),
        "not loaded": _group((name, _describe_missing(plugins[name], config)) for name in missing),
        "servers": _group((name, server_origin(name)) for name in config.servers),
        "model": "; ".join(_describe_models(settings)),
        "planner": settings.planner_model and _describe_model(settings.planner_model, settings),
        "extras": ", ".join(list_installed_extras()),
    }
    return {name: text for name, text in rows.items() if text}


def _describe_models(settings: Settings) -> Iterator[str]:
    """Yield the models of the mesh, then the models of single agents."""
    yield _describe_chain(settings.model, settings.fallbacks, settings)
    for agent, options in settings.agent_options.items():
        if options.model or options.fallbacks:
            model, fallbacks = options.model or settings.model, options.fallbacks
            chain = _describe_chain(model, fallbacks or settings.fallbacks, settings)
            yield f"{agent}: {chain}"


def _describe_chain(model: str, fallbacks: Sequence[str], settings: Settings) -> str:
    return ", then ".join(_describe_model(name, settings) for name in (model, *fallbacks))


def _describe_model(name: str, settings: Settings) -> str:
    """Return the name of a model, and what its calls will miss."""
    if name == RULES:
        return name
    options = ModelChoice(tables=settings.models).resolve_options(name)
    problem = find_provider(name)[0].describe_missing_key(options)
    return f"{name} ({problem})" if problem else name


def _describe_missing(plugin: AgentPlugin[Any], config: McpConfig) -> str:
    missing = [name for name in plugin.required_servers if name not in config.plugin_servers]
    return f"no settings for its MCP server {', '.join(missing)}" if missing else "not asked for"


def _group(pairs: Iterable[tuple[str, str]]) -> str:
    """Join names by origin: `a, b (one); c (other)`."""
    groups: dict[str, list[str]] = {}
    for name, origin in pairs:
        groups.setdefault(origin, []).append(name)
    return "; ".join(f"{', '.join(names)} ({origin})" for origin, names in groups.items())
