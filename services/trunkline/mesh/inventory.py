"""The inventory of a mesh: what it has loaded, and why. `trunkline up` prints it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from trunkline.agents.plugins import AgentPlugin
from trunkline.settings import Settings
from trunkline.tools.config import McpConfig, agents_from_config

# A module that each extra installs.
_EXTRAS: Final = {
    "speed": "uvloop",
    "openai": "langchain_openai",
    "anthropic": "langchain_anthropic",
    "google": "langchain_google_genai",
    "ollama": "langchain_ollama",
    "embeddings": "numpy",
}


def describe_inventory(
    settings: Settings,
    config: McpConfig,
    agents: Sequence[str],
    plugins: Mapping[str, AgentPlugin[Any]],
    *,
    workflows: Collection[str] = (),
) -> dict[str, str]:
    """Return the agents, MCP servers, models and extras of a mesh, each with where it is from."""
    file = str(settings.mcp_file)
    from_file = {spec.name for spec in agents_from_config(config)}

    def agent_origin(name: str) -> str:
        if name in settings.supervisors:
            return f"[supervisor.{name}]"
        if name in plugins:
            return "installed"
        if name in from_file:
            return file
        if name in workflows:
            return "--workflow"
        if name in settings.remotes:
            return f"[remote.{name}]"
        return "bundled" if name == "supervisor" else "--agent"

    def server_origin(name: str) -> str:
        return f"for {config.plugin_servers[name]}" if name in config.plugin_servers else file

    missing = [name for name in plugins if name not in agents]
    rows = {
        "agents": _group((name, agent_origin(name)) for name in agents),
        "not loaded": _group((name, _describe_missing(plugins[name], config)) for name in missing),
        "servers": _group((name, server_origin(name)) for name in config.servers),
        "model": ", then ".join((settings.model, *settings.fallbacks)),
        "planner": settings.planner_model,
        "extras": ", ".join(name for name, module in _EXTRAS.items() if find_spec(module)),
    }
    return {name: text for name, text in rows.items() if text}


def _describe_missing(plugin: AgentPlugin[Any], config: McpConfig) -> str:
    missing = [name for name in plugin.required_servers if name not in config.plugin_servers]
    return f"no settings for its MCP server {', '.join(missing)}" if missing else "not asked for"


def _group(pairs: Iterable[tuple[str, str]]) -> str:
    """Join names by origin: `a, b (one); c (other)`."""
    groups: dict[str, list[str]] = {}
    for name, origin in pairs:
        groups.setdefault(origin, []).append(name)
    return "; ".join(f"{', '.join(names)} ({origin})" for origin, names in groups.items())
