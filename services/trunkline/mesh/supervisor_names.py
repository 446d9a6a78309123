"""Checks the names of agents in the settings of a mesh, and the circles of its supervisors."""

import graphlib
from collections.abc import Collection, Iterator

from trunkline.errors import ConfigurationError
from trunkline.messaging.addresses import check_agent_name
from trunkline.settings import Settings


def check_circles(settings: Settings) -> None:
    """Check that no supervisor of the settings may ask itself, directly or indirectly.

    Raises:
        ConfigurationError: it names the supervisors of a circle.
    """
    named = {name: options.agents for name, options in settings.supervisors.items()}
    try:
        graphlib.TopologicalSorter(named).prepare()
    except graphlib.CycleError as error:
        # The sorter lists them from the asked supervisor to the asking supervisor.
        circle: list[str] = error.args[1][::-1]
        where = f"[supervisor.{circle[0]}] agents"
        # Its name, twice.
        if len(circle) == 2:
            raise ConfigurationError(where, "it can't ask itself; name other agents") from None
        problem = f"{' asks '.join(circle)}: supervisors can't ask in a circle; remove one of these"
        raise ConfigurationError(where, problem) from None


def check_agent_names(settings: Settings) -> None:
    """Check that the agents that the settings define can have their names.

    Raises:
        ConfigurationError: it names the table.
    """
    tables = {
        "supervisor": settings.supervisors,
        "remote": settings.remotes,
        "participant": settings.participants,
        "agent": [
            name for name, options in settings.agent_options.items() if options.defines_agent
        ],
    }
    for table, names in tables.items():
        for name in names:
            check_agent_name(name, f"[{table}.{name}]")


def check_names(settings: Settings, agents: Collection[str]) -> None:
    """Check that a mesh has all agents that its settings name; `agents` are those it has.

    Agents that join from other processes are declared by the setting `joining`.

    Raises:
        ConfigurationError: it names the table and the unknown agent, or the default agent that a
            supervisor may not ask.
    """
    known = {*agents, *settings.joining}
    for supervisor, options in settings.supervisors.items():
        default = options.default_agent
        if default and options.agents and default not in options.agents:
            where = f"[supervisor.{supervisor}] default_agent"
            raise ConfigurationError(where, f"it may not ask {default!r}; add it to agents")
    for where, name in _named_agents(settings):
        if name not in known:
            problem = (
                f"there is no agent {name!r}, only {', '.join(sorted(known))}. Mend the name, or "
                f'set joining = ["{name}"] in trunkline.toml if it joins from another process'
            )
            raise ConfigurationError(where, problem)


def _named_agents(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the names of agents in the settings, each with its place."""
    for name, supervisor in settings.supervisors.items():
        for agent in supervisor.agents:
            yield f"[supervisor.{name}] agents", agent
        if supervisor.default_agent:
            yield f"[supervisor.{name}] default_agent", supervisor.default_agent
    for name in settings.agent_options:
        yield f"[agent.{name}]", name
    for name, callers in settings.policy.callers.items():
        for agent in (name, *callers):
            yield f"[policy.callers] {name}", agent
