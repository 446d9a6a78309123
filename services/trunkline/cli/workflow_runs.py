"""`trunkline workflow`: runs workflows, pauses and resumes their tasks, and chooses versions."""

from contextlib import aclosing
from pathlib import Path
from typing import Final

from trunkline.cli import ask
from trunkline.cli.ephemeral_mesh import start_ephemeral_mesh
from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.options import build_agent_url, load_command_settings, resolve_base_url
from trunkline.cli.streamed_answer import StreamedAnswer
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.errors import InvalidArgumentError
from trunkline.task_states import is_paused, state_name
from trunkline.v1 import snapshot_pb2
from trunkline.workflows.loading import SUFFIXES
from trunkline.workflows.plugins import list_plugin_names
from trunkline.workflows.validation import load_workflow
from trunkline.workflows.versions import WorkflowVersions

_NO_INPUT: Final = "{}"


async def run_workflow(
    target: str, text: str, *, url: str | None, api_key: str, timeout_s: float | None, as_json: bool
) -> int:
    """Run a workflow of the mesh by its name, or a file on a temporary mesh; print its answer.

    Without a mesh, an installed workflow gets one of its own, too.

    Raises:
        ConfigurationError: the file is missing or not valid.
        InvalidArgumentError: a file and the URL of a mesh.
    """
    if Path(target).suffix not in SUFFIXES:
        return await _ask(target, text, url, api_key, timeout_s, as_json=as_json)
    workflow = load_workflow(target)
    if url is not None:
        problem = f"runs on a temporary mesh; give the mesh `--workflow {target}`, and run"
        raise InvalidArgumentError("a file", f"{problem} {workflow.name!r} by its name")
    async with start_ephemeral_mesh(workflow=target) as mesh:
        return await _ask(workflow.name, text, mesh.http, api_key, timeout_s, as_json=as_json)


async def _ask(
    name: str, text: str, url: str | None, api_key: str, timeout_s: float | None, *, as_json: bool
) -> int:
    question = ask.Question(
        text=text or _NO_INPUT,
        agent=name,
        task_id="",
        context_id="",
        timeout_s=timeout_s,
        api_key=api_key,
    )
    installed = name if name in list_plugin_names() else ""
    return await ask.ask(question, url=url, as_json=as_json, workflow=installed)


async def start_workflow(
    name: str, text: str, *, url: str | None, api_key: str, as_json: bool
) -> ExitCode:
    """Start a workflow of the mesh without waiting for its end; print the id of its task."""
    from trunkline.cli.agent_client import AgentClient

    answer = StreamedAnswer(write=lambda _: None)
    async with (
        AgentClient(build_agent_url(resolve_base_url(url), name), api_key=api_key) as client,
        aclosing(client.stream(text or _NO_INPUT)) as results,
    ):
        # The first result has the task, which runs on when the stream is closed.
        answer.apply(await anext(results))
    if as_json:
        print_json({"task_id": answer.task_id, "state": answer.state})
    else:
        # Scripts read the id from stdout.
        print(answer.task_id)
    return ExitCode.OK


async def list_workflows(data_dir: Path | None, *, as_json: bool) -> ExitCode:
    """Print the published workflows of a data directory: name, current version, all versions."""
    versions = _open_versions(data_dir)
    names = versions.list_names()
    if not names:
        print_stderr(
            f"no workflow is published in {versions.data_dir}; serve one with "
            "`trunkline up --workflow FILE`, or name another folder with --data"
        )
    for name in names:
        current = versions.current(name)
        numbers = versions.list_versions(name)
        if as_json:
            print_json({"name": name, "version": current, "versions": numbers})
        else:
            description = versions.load(name, current).description
            print(f"{name}  version {current} of {len(numbers)}  {description}".rstrip())
    return ExitCode.OK


async def list_versions(name: str, data_dir: Path | None, *, as_json: bool) -> ExitCode:
    """Print the versions of a workflow, newest first, and mark the one that new tasks take.

    Raises:
        ConfigurationError: it has none.
    """
    versions = _open_versions(data_dir)
    current = versions.current(name)
    for number in reversed(versions.list_versions(name)):
        is_current = number == current
        description = versions.load(name, number).description
        if as_json:
            print_json({"version": number, "current": is_current, "description": description})
        else:
            print(f"{'*' if is_current else ' '} {number}  {description}".rstrip())
    return ExitCode.OK


async def roll_back(
    name: str, version: int | None, data_dir: Path | None, *, as_json: bool
) -> ExitCode:
    """Let new tasks take another version, by default the one before the current.

    Raises:
        ConfigurationError: there is no such version.
    """
    chosen = _open_versions(data_dir).roll_back(name, version)
    if as_json:
        print_json({"name": name, "version": chosen})
    else:
        print(f"new tasks of {name} take version {chosen}; running tasks keep theirs")
    return ExitCode.OK


async def pause(task_id: str, mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Pause a task: no further node begins."""
    async with open_mesh_view(mesh, is_traced=True) as view:
        client = view.task_host_client(task_id)
        _print_task(await client.pause_task(task_id, account=account), as_json=as_json)
    return ExitCode.OK


async def resume(task_id: str, mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Resume a paused task."""
    async with open_mesh_view(mesh, is_traced=True) as view:
        client = view.task_host_client(task_id)
        _print_task(await client.resume_task(task_id, account=account), as_json=as_json)
    return ExitCode.OK


def _print_task(snapshot: snapshot_pb2.TaskSnapshot, *, as_json: bool) -> None:
    task = snapshot.task
    paused = is_paused(task.metadata)
    state = state_name(task.status.state)
    if as_json:
        print_json({"task_id": task.id, "state": state, "paused": paused})
    else:
        print(f"{task.id} {state}{', paused' if paused else ''}")


def _open_versions(data_dir: Path | None) -> WorkflowVersions:
    settings = load_command_settings({"data_dir": data_dir}, uses={"data_dir"})
    return WorkflowVersions(settings.data_dir)
