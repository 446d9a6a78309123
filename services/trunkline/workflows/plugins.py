"""Workflows of installed packages, declared in the entry-point group `trunkline.workflows`.

A package that declares such an entry point has its workflow on the meshes that name it:

    [project.entry-points."trunkline.workflows"]
    onboarding = "my_onboarding.agent:plugin"

The entry point's name is the workflow's name, and it refers to a `WorkflowPlugin`. `workflows =
["onboarding"]` in `trunkline.toml`, or `--workflow onboarding`, puts the workflow on the mesh, with
the agents that it brings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from trunkline.agents.authoring import FunctionAgent
from trunkline.errors import ConfigurationError

WORKFLOW_PLUGIN_GROUP: Final = "trunkline.workflows"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowPlugin:
    """A workflow, and the agents that it needs beside the agents of the mesh."""

    file: Path
    """The workflow, in YAML or JSON."""
    agents: Sequence[FunctionAgent] = ()
    """They join the mesh with the workflow, unless it has agents of their names already."""


def list_plugin_names() -> list[str]:
    """Return the names of the installed workflows, sorted."""
    return sorted({point.name for point in entry_points(group=WORKFLOW_PLUGIN_GROUP)})


def load_workflow_plugin(name: str) -> WorkflowPlugin | None:
    """Return the installed workflow of a name, if there is one.

    Raises:
        ConfigurationError: it can't be loaded, or two packages have a workflow of this name.
    """
    points = list(entry_points(group=WORKFLOW_PLUGIN_GROUP, name=name))
    if not points:
        return None
    if len(points) > 1:
        values = ", ".join(sorted(point.value for point in points))
        raise ConfigurationError(f"workflow {name!r}", f"two packages have it: {values}")
    return _load(points[0])


def load_plugin_agents(entries: Sequence[str]) -> Mapping[str, Sequence[FunctionAgent]]:
    """Return the agents that the installed workflows among the entries bring, by workflow.

    Each agent is there once. `entries` is the setting `workflows`.

    Raises:
        ConfigurationError: a workflow can't be loaded.
    """
    found: dict[str, Sequence[FunctionAgent]] = {}
    seen: set[str] = set()
    for entry in entries:
        plugin = load_workflow_plugin(entry)
        if plugin is not None:
            found[entry] = [agent for agent in plugin.agents if agent.card.name not in seen]
            seen.update(agent.card.name for agent in plugin.agents)
    return found


def _load(point: EntryPoint) -> WorkflowPlugin:
    try:
        plugin = point.load()
    # A package may raise anything while it is imported.
    except Exception as error:
        problem = f"can't be loaded: {type(error).__name__}: {error}"
        raise ConfigurationError(point.value, problem) from error
    if not isinstance(plugin, WorkflowPlugin):
        raise ConfigurationError(point.value, "is no WorkflowPlugin")
    return plugin
