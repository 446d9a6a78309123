"""The commands for workflows: validate and diff files; show and export files and tasks."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    AccountOption,
    DataOption,
    JsonOption,
    MeshOption,
    argument,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json, print_stderr, write
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import ConfigurationError, InvalidArgumentError

workflow = typer.Typer(
    help="Validate, draw, run and pause workflows, and choose their versions.",
    rich_markup_mode=None,
)

FileArgument = Annotated[Path, argument("FILE", "A workflow, YAML or JSON.")]


@command(workflow, "validate")
def validate_files(
    files: Annotated[list[Path], argument("FILE...", "Workflows, YAML or JSON.")],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> ExitCode:
    """Validate workflow files; print all faults with their lines. Exits 1 if there are any.

    With --mesh, also check the names of agents, tools and workflows.
    """
    import asyncio
    import os

    from trunkline.cli.workflows import fetch_names, print_validation, to_fields, validate
    from trunkline.workflows.validation import MeshNames, list_tool_servers

    is_mesh_known = mesh is not None or bool(os.environ.get("TRUNKLINE_MESH"))
    servers = frozenset[str]().union(*(list_tool_servers(file) for file in files))
    names = asyncio.run(fetch_names(mesh, servers)) if is_mesh_known else MeshNames()
    validations = {str(file): validate(file, names) for file in files}
    if json:
        print_json({name: to_fields(validation) for name, validation in validations.items()})
    else:
        for name, validation in validations.items():
            print_validation(name, validation)
    is_valid = all(validation.workflow is not None for validation in validations.values())
    return ExitCode.OK if is_valid else ExitCode.FAILED


@command(workflow, "show")
def show_workflow(
    source: Annotated[
        str,
        argument(
            "FILE|NAME|TASK",
            "A workflow, YAML or JSON; a published one by its name; or a task of the mesh.",
        ),
    ],
    *,
    svg: Annotated[Path | None, option("OUT", "Write an SVG there.")] = None,
    visited: Annotated[str, option("ID,ID", "Mark these nodes as the path of a run.")] = "",
    failed: Annotated[str, option("ID", "Mark this node as failed.")] = "",
    mesh: MeshOption = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    data: DataOption = None,
) -> None:
    """Draw a workflow as Mermaid text, or as an SVG; a task with the path of its run."""
    import asyncio

    from trunkline.cli.workflows import check_path, is_source, load_source, read_run
    from trunkline.workflows.drawing import RunPath, draw_mermaid, draw_svg
    from trunkline.workflows.versions import WorkflowVersions

    path = RunPath(tuple(filter(None, visited.split(","))), failed)
    if is_source(source):
        workflow = load_source(source)
    else:
        settings = load_command_settings({"data_dir": data}, uses={"data_dir"})
        versions = WorkflowVersions(settings.data_dir)
        if source in versions.list_names():
            workflow = versions.load(source, versions.current(source))
        elif visited or failed:
            problem = "is for files and names; a task has the path of its run"
            raise InvalidArgumentError("--visited" if visited else "--failed", problem)
        else:
            workflow, path = asyncio.run(read_run(source, versions, mesh, account))
    check_path(workflow, path)
    if svg is None:
        write(draw_mermaid(workflow, path))
    else:
        _write_file(svg, draw_svg(workflow, path))


@command(workflow, "diff")
def diff_files(old: FileArgument, new: FileArgument, *, json: JsonOption = False) -> ExitCode:
    """Show the differences of two versions. Exits 1 if there are any."""
    from trunkline.cli.workflows import load_source
    from trunkline.workflows.differences import list_differences

    lines = list_differences(load_source(old), load_source(new))
    if json:
        print_json({"differences": lines})
    else:
        write("".join(f"{line}\n" for line in lines))
    return ExitCode.FAILED if lines else ExitCode.OK


@command(workflow, "export")
def export_workflow(
    source: Annotated[
        str,
        argument(
            "FILE|TASK",
            "A workflow file, or a task of a supervisor, whose plan becomes a workflow.",
        ),
    ],
    *,
    output: Annotated[Path | None, option("OUT", "Write it there.", "--output", "-o")] = None,
    name: Annotated[str, option("NAME", "Of the workflow of a plan. [plan-TASK]")] = "",
    file_format: Annotated[
        str | None, option("FORMAT", "yaml or json. [by OUT, or yaml]", "--format")
    ] = None,
    mesh: MeshOption = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
) -> None:
    """Write a workflow, or the plan of a supervisor's task, as YAML or JSON."""
    import asyncio

    from trunkline.cli.workflows import FORMATS, is_source, load_source, read_plan
    from trunkline.workflows.builders import dump_workflow

    is_json = output is not None and output.suffix == ".json"
    file_format = file_format or ("json" if is_json else "yaml")
    if file_format not in FORMATS:
        raise InvalidArgumentError("--format", f"{file_format!r} is none of: {', '.join(FORMATS)}")
    if is_source(source):
        if name:
            raise InvalidArgumentError("--name", "is for the plan of a task; a file has its name")
        workflow = load_source(source)
    else:
        workflow = asyncio.run(read_plan(source, name, mesh, account))
    text = dump_workflow(workflow, file_format)
    if output is None:
        write(text)
    else:
        _write_file(output, text)


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(str(path), f"can't be written: {error.strerror}") from error
    print_stderr(f"wrote {path}")
