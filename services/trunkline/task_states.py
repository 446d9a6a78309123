"""Which states end a task and which interrupt it; what may follow what is the lifecycle's table."""

from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.v1 import task_pb2

if TYPE_CHECKING:
    State: TypeAlias = task_pb2.TaskState.ValueType
else:
    # The generated type exists for checkers only; at run time a state is its number.
    State = int

TERMINAL: Final[frozenset[State]] = frozenset(
    {
        task_pb2.TASK_STATE_COMPLETED,
        task_pb2.TASK_STATE_FAILED,
        task_pb2.TASK_STATE_CANCELED,
        task_pb2.TASK_STATE_REJECTED,
    }
)
INTERRUPTED: Final[frozenset[State]] = frozenset(
    {task_pb2.TASK_STATE_INPUT_REQUIRED, task_pb2.TASK_STATE_AUTH_REQUIRED}
)
