"""What the commands for runs and versions of workflows share."""

from pathlib import Path

from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json
from trunkline.task_states import is_paused, state_name
from trunkline.v1 import snapshot_pb2
from trunkline.workflows.versions import WorkflowVersions


def print_task(snapshot: snapshot_pb2.TaskSnapshot, *, as_json: bool) -> None:
    """Print the state of a task, and whether it is paused."""
    task = snapshot.task
    paused = is_paused(task.metadata)
    state = state_name(task.status.state)
    if as_json:
        print_json({"task_id": task.id, "state": state, "paused": paused})
    else:
        print(f"{task.id} {state}{', paused' if paused else ''}")


def open_versions(data_dir: Path | None) -> WorkflowVersions:
    """Return the versions of the workflows in a data directory."""
    settings = load_command_settings({"data_dir": data_dir}, uses={"data_dir"})
    return WorkflowVersions(settings.data_dir)
