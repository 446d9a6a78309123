"""The commands of `trunkline workflow` that run workflows, and choose their versions."""

from pathlib import Path
from typing import Annotated

from trunkline.cli.commands.ask import check_question
from trunkline.cli.commands.workflows import workflow
from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    ApiKeyOption,
    DataOption,
    JsonOption,
    MeshCall,
    TaskIdArgument,
    TimeoutOption,
    UrlOption,
    argument,
    build_agent_url,
    resolve_api_key,
    resolve_base_url,
)
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.errors import InvalidArgumentError

__all__ = ["workflow"]

_NO_INPUT = "{}"

_WorkflowName = Annotated[str, argument("NAME", "Of the workflow.")]
_Input = Annotated[str, argument("INPUT", "A text, or JSON.")]


@command(workflow, "run")
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


@command(workflow, "start")
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


@command(workflow, "list")
def list_workflows(data: DataOption = None, *, json: JsonOption = False) -> None:
    """List the published workflows of a data directory, and the versions that new tasks take."""
    from trunkline.cli.workflows import open_versions

    versions = open_versions(data)
    names = versions.list_names()
    if not names:
        print_stderr(
            f"no workflow is published in {versions.data_dir}; serve one with "
            "`trunkline up --workflow FILE`, or name another folder with --data"
        )
    for name in names:
        current = versions.current(name)
        numbers = versions.list_versions(name)
        if json:
            print_json({"name": name, "version": current, "versions": numbers})
        else:
            description = versions.load(name, current).description
            print(f"{name}  version {current} of {len(numbers)}  {description}".rstrip())


@command(workflow, "versions")
def list_versions(
    name: _WorkflowName, data: DataOption = None, *, json: JsonOption = False
) -> None:
    """List the versions of a workflow; `*` marks the version that new tasks take."""
    from trunkline.cli.workflows import open_versions

    versions = open_versions(data)
    current = versions.current(name)
    for number in reversed(versions.list_versions(name)):
        is_current = number == current
        description = versions.load(name, number).description
        if json:
            print_json({"version": number, "current": is_current, "description": description})
        else:
            print(f"{'*' if is_current else ' '} {number}  {description}".rstrip())


@command(workflow, "rollback")
def roll_back(
    name: _WorkflowName,
    version: Annotated[int | None, argument("VERSION", "The version. [the one before]")] = None,
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Let new tasks take another version, until a newer one is published."""
    from trunkline.cli.workflows import open_versions

    chosen = open_versions(data).roll_back(name, version)
    if json:
        print_json({"name": name, "version": chosen})
    else:
        print(f"new tasks of {name} take version {chosen}; running tasks keep theirs")


@command(workflow, "pause")
async def pause(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> None:
    """Pause a task: running nodes finish, and no further node begins."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.workflows import print_state

    async with open_mesh_view(call.mesh, is_traced=True) as view:
        client = view.task_host_client(task_id)
        print_state(await client.pause_task(task_id, account=call.account), as_json=call.json)


@command(workflow, "resume")
async def resume(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> None:
    """Resume a paused task."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.workflows import print_state

    async with open_mesh_view(call.mesh, is_traced=True) as view:
        client = view.task_host_client(task_id)
        print_state(await client.resume_task(task_id, account=call.account), as_json=call.json)
