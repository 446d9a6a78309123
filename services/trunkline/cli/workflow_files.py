"""Workflow files as commands read and validate them."""

import os
from pathlib import Path
from typing import Any, Final

from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.terminal import print_stderr
from trunkline.client.services import TOOL_SERVERS_TIMEOUT_S
from trunkline.errors import ConfigurationError
from trunkline.json_values import struct_json
from trunkline.source_documents import Fault
from trunkline.supervisor.plan_export import export_plan, has_files
from trunkline.workflows.definition import Workflow
from trunkline.workflows.loading import SUFFIXES
from trunkline.workflows.plugins import list_plugin_names, load_workflow_plugin
from trunkline.workflows.validation import (
    MeshNames,
    Validation,
    load_workflow,
    validate_file,
)

FORMATS: Final = ("yaml", "json")


def validate(file: Path, names: MeshNames) -> Validation:
    """Validate a file. One that can't be read has that as its fault."""
    try:
        return validate_file(file, names)
    except ConfigurationError as error:
        return Validation(None, (Fault(str(file), 1, 1, "", error.problem),))


def load_source(source: str | Path) -> Workflow:
    """Read a workflow, of a file or an installed one by its name. Raises as `load_workflow`."""
    plugin = load_workflow_plugin(str(source))
    return load_workflow(source if plugin is None else plugin.file)


def is_source(source: str) -> bool:
    """Return whether a source is a file or an installed workflow, and no name or task of a mesh."""
    path = Path(source)
    is_file = path.suffix in SUFFIXES or os.sep in source or path.exists()
    return is_file or source in list_plugin_names()


async def fetch_names(mesh: str | None, servers: frozenset[str]) -> MeshNames:
    """Return the names of agents and tools of a mesh. Workflows are agents of it.

    The tools of `servers` are waited for; those of other servers serve as suggestions.
    """
    async with open_mesh_view(mesh) as view:
        agents = {agent.card.name for host in view.hosts for agent in host.agents}
        client = view.tool_client()
        if servers:
            await client.wait_for_tools(tuple(servers), timeout_s=TOOL_SERVERS_TIMEOUT_S)
        listing = await client.list_known_tools()
        tools: dict[str, Any] = {
            f"{tool.server}/{tool.name}": struct_json(tool.input_schema) for tool in listing.tools
        }
    return MeshNames(frozenset(agents), tools, dict.fromkeys(agents))


def print_validation(name: str, validation: Validation) -> None:
    """Print the faults of a file, or that it has none."""
    for fault in validation.faults:
        print(fault)
    if validation.workflow is not None:
        print(f"ok  {name}")
    if validation.unchecked:
        print_stderr(
            f"{name}: names of {', '.join(validation.unchecked)} were not checked; "
            "give --mesh to check them"
        )


def to_fields(validation: Validation) -> dict[str, Any]:
    """Return what a validation found as JSON."""
    return {
        "valid": validation.workflow is not None,
        "faults": [
            {
                "line": fault.line,
                "column": fault.column,
                "where": fault.where,
                "problem": fault.problem,
            }
            for fault in validation.faults
        ],
        "unchecked": list(validation.unchecked),
    }


async def read_plan(task_id: str, name: str, mesh: str | None, account: str) -> Workflow:
    """Return the plan of a supervisor's task as a workflow.

    Raises:
        InvalidArgumentError: the task has no plan of a supervisor.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    async with open_mesh_view(mesh) as view:
        snapshot = await view.task_host_client(task_id).get_task(task_id, account=account)
    workflow = export_plan(snapshot, name)
    if has_files(snapshot):
        print_stderr(f"{task_id}: the files of its request are not part of the workflow")
    return workflow
