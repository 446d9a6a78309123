"""`trunkline workflow show`: draws a workflow, or a run with its path."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_stderr, write
from trunkline.cli.workflow_files import is_source, load_source
from trunkline.client import HostClient
from trunkline.client.run_paths import find_failed, find_path, find_version, list_visited
from trunkline.errors import ConfigurationError, CursorExpiredError, InvalidArgumentError
from trunkline.journal.batches import parse_batch
from trunkline.supervisor.plan_export import export_plan
from trunkline.supervisor.references import format_node_id
from trunkline.task_states import TERMINAL
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline.workflows.definition import Workflow
from trunkline.workflows.drawing import RunPath, draw_mermaid, draw_svg
from trunkline.workflows.versions import WorkflowVersions


class Origin(NamedTuple):
    """The mesh, the account and the data directory of published workflows and runs."""

    mesh: str | None = None
    account: str = ""
    data_dir: Path | None = None


def show_workflow(
    source: str, svg: Path | None, visited: Sequence[str], failed: str, origin: Origin
) -> ExitCode:
    """Draw a workflow: print Mermaid text, or write an SVG.

    `source` is a file or an installed workflow, the name of a published one, or a task, whose path
    is marked.

    Raises:
        ConfigurationError: the workflow has faults or is not there, or the SVG can't be written.
        InvalidArgumentError: a node of the path is not in the workflow, or the task has no plan.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    path = RunPath(tuple(visited), failed)
    if is_source(source):
        workflow = load_source(source)
    else:
        settings = load_command_settings({"data_dir": origin.data_dir}, uses={"data_dir"})
        versions = WorkflowVersions(settings.data_dir)
        if source in versions.list_names():
            workflow = versions.load(source, versions.current(source))
        elif visited or failed:
            problem = "is for files and names; the path of a task is that of its run"
            raise InvalidArgumentError("--visited" if visited else "--failed", problem)
        else:
            workflow, path = asyncio.run(_read_run(source, versions, origin))
    _check_path(workflow, path)
    if svg is None:
        write(draw_mermaid(workflow, path))
        return ExitCode.OK
    try:
        svg.write_text(draw_svg(workflow, path), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(str(svg), f"can't be written: {error.strerror}") from error
    print_stderr(f"wrote {svg}")
    return ExitCode.OK


def _check_path(workflow: Workflow, path: RunPath) -> None:
    known = {node.id for node in workflow.nodes}
    for option, names in (("--visited", path.visited), ("--failed", [path.failed])):
        unknown = [name for name in names if name and name not in known]
        if unknown:
            raise InvalidArgumentError(option, f"the workflow has no node {unknown[0]!r}")


async def _read_run(
    task_id: str, versions: WorkflowVersions, origin: Origin
) -> tuple[Workflow, RunPath]:
    """Return the workflow of a task, in the version of its run, and the run's path."""
    async with open_mesh_view(origin.mesh) as view:
        client = view.task_host_client(task_id)
        snapshot = await client.get_task(task_id, account=origin.account)
        version = find_version(snapshot)
        if version is None:
            return export_plan(snapshot), _find_plan_path(snapshot)
        try:
            workflow = versions.load(snapshot.agent, version)
        except ConfigurationError as error:
            problem = f"{error.problem}; name the data directory of its mesh with --data"
            raise ConfigurationError(f"workflow {snapshot.agent!r}", problem) from error
        path = find_path([pair async for pair in _read_events(client, task_id, origin.account)])
    return workflow, RunPath(list_visited(path), find_failed(path))


def _find_plan_path(snapshot: snapshot_pb2.TaskSnapshot) -> RunPath:
    """Return the steps of a supervisor's plan that have ended, by the children that ran them."""
    visited, failed = [], ""
    for child in snapshot.children:
        if child.HasField("finished") and child.finished.state in TERMINAL:
            visited.append(format_node_id(child.started.step_id))
            if child.finished.state != task_pb2.TASK_STATE_COMPLETED:
                failed = visited[-1]
    known = {format_node_id(step.step_id) for plan in snapshot.plans[-1:] for step in plan.steps}
    return RunPath([node for node in visited if node in known], failed if failed in known else "")


async def _read_events(
    client: HostClient, task_id: str, account: str
) -> AsyncIterator[tuple[event_pb2.BatchHeader, event_pb2.Event]]:
    try:
        async with client.watch_task(
            task_id, account=account, after=0, with_snapshot=False, until_head=True
        ) as stream:
            async for sealed_batches in stream:
                for sealed in sealed_batches:
                    batch = parse_batch(sealed)
                    for event in batch.events:
                        yield batch.header, event
    except CursorExpiredError:
        print_stderr(f"{task_id}: its single events are gone (`compact_after_s`), so its path is")
