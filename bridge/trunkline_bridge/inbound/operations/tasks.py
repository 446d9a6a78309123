"""What operations ask of a task."""

from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import TaskEndedError, TaskNotFoundError
from trunkline.v1 import snapshot_pb2, task_pb2
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.caller import Caller
from trunkline_bridge.projection.states import ENDED


def own(
    caller: Caller, task_id: str, snapshot: snapshot_pb2.TaskSnapshot | None
) -> snapshot_pb2.TaskSnapshot:
    """Return a task that shows at the agent's address. TaskNotFoundError: it doesn't."""
    if snapshot is None or snapshot.agent != caller.agent:
        raise TaskNotFoundError(task_id)
    tracing.note_task(snapshot)
    return snapshot


def check_not_ended(snapshot: snapshot_pb2.TaskSnapshot) -> None:
    """Raise TaskEndedError if a task has ended."""
    state = snapshot.task.status.state
    if state in ENDED:
        name = task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_").lower()
        raise TaskEndedError(snapshot.task.id, name)


def history_length_of(
    request: a2a_pb2.SendMessageConfiguration | a2a_pb2.GetTaskRequest | a2a_pb2.ListTasksRequest,
) -> int | None:
    """Return how much history a request asks for; None: all of it."""
    return request.history_length if request.HasField("history_length") else None
