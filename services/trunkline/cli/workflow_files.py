"""`trunkline workflow validate` and `diff`: the commands for workflow files."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.terminal import print_json, print_stderr, write
from trunkline.client.services import TOOL_SERVERS_TIMEOUT_S
from trunkline.errors import ConfigurationError
from trunkline.json_values import struct_json
from trunkline.workflows.definition import Workflow
from trunkline.workflows.differences import list_differences
from trunkline.workflows.documents import Fault
from trunkline.workflows.loading import SUFFIXES
from trunkline.workflows.plugins import list_plugin_names, load_workflow_plugin
from trunkline.workflows.validation import (
    MeshNames,
    Validation,
    list_tool_servers,
    load_workflow,
    validate_file,
)

FORMATS: Final = ("yaml", "json")


def validate_files(files: Sequence[Path], mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print all faults of files. Names are checked against a mesh if one is named.

    A file that can't be read is a fault, so that the others are reported.

    Raises:
        PeerUnavailableError: the mesh does not answer.
    """
    is_mesh_known = mesh is not None or bool(os.environ.get("TRUNKLINE_MESH"))
    servers = frozenset[str]().union(*(list_tool_servers(file) for file in files))
    names = asyncio.run(_fetch_names(mesh, servers)) if is_mesh_known else MeshNames()
    validations = {str(file): _validate(file, names) for file in files}
    if as_json:
        print_json({name: _to_json(validation) for name, validation in validations.items()})
    else:
        for name, validation in validations.items():
            _print_validation(name, validation)
    is_valid = all(validation.workflow is not None for validation in validations.values())
    return ExitCode.OK if is_valid else ExitCode.FAILED


def _validate(file: Path, names: MeshNames) -> Validation:
    try:
        return validate_file(file, names)
    except ConfigurationError as error:
        return Validation(None, (Fault(str(file), 1, 1, "", error.problem),))


def diff_files(old: Path, new: Path, *, as_json: bool) -> ExitCode:
    """Print the differences of two workflows; return FAILED if there are any, as `diff` does.

    Raises:
        ConfigurationError: a file has faults.
    """
    lines = list_differences(load_source(old), load_source(new))
    if as_json:
        print_json({"differences": lines})
    else:
        write("".join(f"{line}\n" for line in lines))
    return ExitCode.FAILED if lines else ExitCode.OK


def load_source(source: str | Path) -> Workflow:
    """Read a workflow, of a file or an installed one by its name. Raises as `load_workflow`."""
    plugin = load_workflow_plugin(str(source))
    return load_workflow(source if plugin is None else plugin.file)


def is_source(source: str) -> bool:
    """Return whether a source is a file or an installed workflow, and no name or task of a mesh."""
    path = Path(source)
    is_file = path.suffix in SUFFIXES or os.sep in source or path.exists()
    return is_file or source in list_plugin_names()


async def _fetch_names(mesh: str | None, servers: frozenset[str]) -> MeshNames:
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


def _print_validation(name: str, validation: Validation) -> None:
    for fault in validation.faults:
        print(fault)
    if validation.workflow is not None:
        print(f"ok  {name}")
    if validation.unchecked:
        print_stderr(
            f"{name}: names of {', '.join(validation.unchecked)} were not checked; "
            "give --mesh to check them"
        )


def _to_json(validation: Validation) -> dict[str, Any]:
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
