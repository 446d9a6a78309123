"""The workflow of a run, and the path that the run took."""

from collections.abc import AsyncIterator

from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.terminal import print_stderr
from trunkline.client import HostClient
from trunkline.client.run_paths import find_failed, find_path, find_version, list_visited
from trunkline.errors import ConfigurationError, CursorExpiredError, InvalidArgumentError
from trunkline.journal.batches import parse_batch
from trunkline.supervisor.plan_export import export_plan
from trunkline.supervisor.references import format_node_id
from trunkline.task_states import TERMINAL
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline.workflows.definition import Workflow
from trunkline.workflows.drawing import RunPath
from trunkline.workflows.versions import WorkflowVersions


def check_path(workflow: Workflow, path: RunPath) -> None:
    """Check that a workflow has the nodes of a path. InvalidArgumentError: one is missing."""
    known = {node.id for node in workflow.nodes}
    for option, names in (("--visited", path.visited), ("--failed", [path.failed])):
        unknown = [name for name in names if name and name not in known]
        if unknown:
            raise InvalidArgumentError(option, f"the workflow has no node {unknown[0]!r}")


async def read_run(
    task_id: str, versions: WorkflowVersions, mesh: str | None, account: str
) -> tuple[Workflow, RunPath]:
    """Return the workflow of a task, in the version of its run, and the run's path.

    Raises:
        ConfigurationError: the workflow is not in the data directory.
        InvalidArgumentError: the task has no plan.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    async with open_mesh_view(mesh) as view:
        client = view.task_host_client(task_id)
        snapshot = await client.get_task(task_id, account=account)
        version = find_version(snapshot)
        if version is None:
            return export_plan(snapshot), _find_plan_path(snapshot)
        try:
            workflow = versions.load(snapshot.agent, version)
        except ConfigurationError as error:
            problem = f"{error.problem}; name the data directory of its mesh with --data"
            raise ConfigurationError(f"workflow {snapshot.agent!r}", problem) from error
        path = find_path([pair async for pair in _read_events(client, task_id, account)])
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
