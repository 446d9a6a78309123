"""The commands for workflows: they check and draw files, run them, and choose their versions."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.commands.ask import check_question
from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    AccountOption,
    ApiKeyOption,
    DataOption,
    JsonOption,
    MeshCall,
    MeshOption,
    TaskIdArgument,
    TimeoutOption,
    UrlOption,
    argument,
    build_agent_url,
    choose,
    option,
    resolve_api_key,
    resolve_base_url,
)
from trunkline.cli.terminal import print_json, print_stderr, write
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import ConfigurationError, InvalidArgumentError

group = typer.Typer()

_NO_INPUT = "{}"

_WorkflowName = Annotated[str, argument("NAME", "Of the workflow.")]
_Input = Annotated[str, argument("INPUT", "A text, or JSON.")]
_FORMATS = {"yaml": "yaml", "json": "json"}

FileArgument = Annotated[Path, argument("FILE", "A workflow, YAML or JSON.")]


@command(group, "validate")
def validate_files(
    files: Annotated[list[Path], argument("FILE...", "Workflows, YAML or JSON.")],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> ExitCode:
    """Validate workflow files; print all faults with their lines. Exits 1 if there are any.

    With --mesh, also check the names of agents, tools and workflows.
    """
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


@command(group, "show")
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
    from trunkline.cli.workflows import (
        check_path,
        is_source,
        load_source,
        read_published,
    )
    from trunkline.workflows.drawing import RunPath, draw_mermaid, draw_svg

    path = RunPath(tuple(filter(None, visited.split(","))), failed)
    if is_source(source):
        workflow = load_source(source)
    else:
        reading = read_published(source, path, data=data, mesh=mesh, account=account)
        workflow, path = asyncio.run(reading)
    check_path(workflow, path)
    if svg is None:
        write(draw_mermaid(workflow, path))
    else:
        _write_file(svg, draw_svg(workflow, path))


@command(group, "diff")
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


@command(group, "export")
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
    from trunkline.cli.workflows import is_source, load_source, read_plan
    from trunkline.workflows.builders import dump_workflow

    is_json = output is not None and output.suffix == ".json"
    file_format = file_format or ("json" if is_json else "yaml")
    choose("--format", file_format, _FORMATS)
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


@command(group, "run")
async def run_workflow(
    target: Annotated[
        str,
        argument(
            "FILE|NAME",
            "A workflow of the mesh by its name, or a file, which gets a temporary mesh.",
        ),
    ],
    text: _Input = "",
    *,
    url: UrlOption = None,
    key: ApiKeyOption = None,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Run a workflow and stream its answer. Exits 0 only if the task completed."""
    from trunkline.cli.ephemeral_mesh import open_mesh, start_ephemeral_mesh
    from trunkline.workflows.loading import SUFFIXES
    from trunkline.workflows.plugins import list_plugin_names
    from trunkline.workflows.validation import load_workflow

    text = text or _NO_INPUT
    check_question(text)
    if Path(target).suffix not in SUFFIXES:
        name = target
        # Without a mesh, an installed workflow gets one of its own.
        opening = open_mesh(url, workflow=name if name in list_plugin_names() else "")
    elif url is None:
        name = load_workflow(target).name
        opening = start_ephemeral_mesh(workflow=target)
    else:
        name = load_workflow(target).name
        problem = f"runs on a temporary mesh; give the mesh `--workflow {target}`, and run"
        raise InvalidArgumentError("a file", f"{problem} {name!r} by its name")
    async with opening as mesh:
        from trunkline.cli.ask import ask_agent

        return await ask_agent(
            mesh,
            text,
            agent=name,
            url=url,
            api_key=resolve_api_key(key),
            timeout_s=timeout,
            as_json=json,
        )


@command(group, "start")
async def start_workflow(
    name: _WorkflowName,
    text: _Input = "",
    *,
    url: UrlOption = None,
    key: ApiKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Start a workflow of the mesh, and print the id of its task without waiting for the end."""
    from trunkline.cli.agent_client import AgentClient, build_message
    from trunkline.v1 import task_pb2

    base = build_agent_url(resolve_base_url(url), name)
    async with AgentClient(base, api_key=resolve_api_key(key)) as client:
        task = await client.start(build_message(text or _NO_INPUT))
    if json:
        print_json({"task_id": task.id, "state": task_pb2.TaskState.Name(task.status.state)})
    else:
        # Scripts read the id from stdout.
        print(task.id)


@command(group, "list")
async def list_workflows(data: DataOption = None, *, json: JsonOption = False) -> None:
    """List the published workflows, and the versions that new tasks take."""
    from trunkline.cli.workflows import open_versions

    async with open_versions(data) as versions:
        names = await versions.list_names()
        if not names:
            print_stderr(
                f"no workflow is published in {versions.place}; serve one with "
                "`trunkline up --workflow FILE`, or name another folder with --data"
            )
        for name in names:
            current = await versions.current(name)
            numbers = await versions.list_versions(name)
            if json:
                print_json({"name": name, "version": current, "versions": numbers})
            else:
                description = (await versions.load(name, current)).description
                print(f"{name}  version {current} of {len(numbers)}  {description}".rstrip())


@command(group, "versions")
async def list_versions(
    name: _WorkflowName, data: DataOption = None, *, json: JsonOption = False
) -> None:
    """List the versions of a workflow; `*` marks the version that new tasks take."""
    from trunkline.cli.workflows import open_versions

    async with open_versions(data) as versions:
        current = await versions.current(name)
        for number in reversed(await versions.list_versions(name)):
            is_current = number == current
            description = (await versions.load(name, number)).description
            if json:
                print_json({"version": number, "current": is_current, "description": description})
            else:
                print(f"{'*' if is_current else ' '} {number}  {description}".rstrip())


@command(group, "rollback")
async def roll_back(
    name: _WorkflowName,
    version: Annotated[int | None, argument("VERSION", "The version. [the one before]")] = None,
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Let new tasks take another version, until a newer one is published."""
    from trunkline.cli.workflows import open_versions

    async with open_versions(data) as versions:
        chosen = await versions.roll_back(name, version)
    if json:
        print_json({"name": name, "version": chosen})
    else:
        print(f"new tasks of {name} take version {chosen}; running tasks keep theirs")


@command(group, "pause")
async def pause(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> None:
    """Pause a task: running nodes finish, and no further node begins."""
    from trunkline.cli.directory import open_directory
    from trunkline.cli.workflows import print_state

    async with open_directory(call.mesh, is_traced=True) as directory:
        client = directory.client_for_task(task_id)
        print_state(await client.pause_task(task_id, account=call.account), as_json=call.json)


@command(group, "resume")
async def resume(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> None:
    """Resume a paused task."""
    from trunkline.cli.directory import open_directory
    from trunkline.cli.workflows import print_state

    async with open_directory(call.mesh, is_traced=True) as directory:
        client = directory.client_for_task(task_id)
        print_state(await client.resume_task(task_id, account=call.account), as_json=call.json)


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(str(path), f"can't be written: {error.strerror}") from error
    print_stderr(f"wrote {path}")
