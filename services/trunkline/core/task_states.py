"""The states and the outcomes of a task, with the states that end or interrupt it or its turn.

`trunkline.tasks.lifecycle` says which state may follow which.
"""

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.core.json_values import read_member, read_text
from trunkline.v1 import json_pb2, task_pb2

if TYPE_CHECKING:
    StateValue: TypeAlias = task_pb2.TaskState.ValueType
else:
    # The generated type exists for type checkers only. At run time a state is an integer.
    StateValue = int


class TaskState(StrEnum):
    """The states of a task, by the names that people read."""

    SUBMITTED = "submitted"
    """Accepted; the agent has written nothing yet."""
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    """The agent asks something; the next message continues the task."""
    AUTH_REQUIRED = "auth-required"
    """The agent lacks credentials; the next message continues the task."""
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"

    @classmethod
    def from_proto(cls, state: StateValue) -> "TaskState":
        """Return the member for a state of the contract. ValueError for an unspecified one."""
        return cls(state_name(state))


TERMINAL: Final[frozenset[StateValue]] = frozenset(
    {
        task_pb2.TASK_STATE_COMPLETED,
        task_pb2.TASK_STATE_FAILED,
        task_pb2.TASK_STATE_CANCELED,
        task_pb2.TASK_STATE_REJECTED,
    }
)
"""The task has ended. No event follows."""
INTERRUPTED: Final[frozenset[StateValue]] = frozenset(
    {task_pb2.TASK_STATE_INPUT_REQUIRED, task_pb2.TASK_STATE_AUTH_REQUIRED}
)
"""The task waits for a message or for credentials."""
TURN_END: Final[frozenset[StateValue]] = TERMINAL | {task_pb2.TASK_STATE_INPUT_REQUIRED}
"""Nothing follows before the client's next message.

`auth-required` is not among them: the credentials may come from elsewhere, and then the task
continues without a message.
"""


OUTCOME_KEY: Final = "trunkline/outcome"
"""The key of a task's outcome in the metadata of the task and of its last status."""


FAILURES_NAMED_KEY: Final = "trunkline/failures-named"
"""The key in the metadata of a failed status whose text names each step that failed.

A supervisor above repeats such a text unchanged.
"""


PARTS_MISSING_KEY: Final = "trunkline/parts-missing"
"""The key in the metadata of a task that waits for input, and whose answer so far lacks a part."""


PAUSED_KEY: Final = "trunkline/paused"
"""The key in the metadata of a task that is true while the task is paused."""


WORKFLOW_VERSION_KEY: Final = "trunkline/workflow-version"
"""The key in the metadata of a message that asks for a version of a workflow."""


class TaskOutcome(StrEnum):
    """The outcome of a task that has ended."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    """It completed, and a part of the answer is missing."""
    FAILED = "failed"
    """It failed, or was rejected or canceled."""


def find_outcome(state: StateValue, metadata: json_pb2.Struct) -> TaskOutcome | None:
    """Return the outcome of a task in a state, or None if it has not ended.

    `metadata` is the metadata of the task or of its last status. It only tells `partial` from
    `complete`.
    """
    if state not in TERMINAL:
        return None
    if state != task_pb2.TASK_STATE_COMPLETED:
        return TaskOutcome.FAILED
    is_partial = read_text(metadata, OUTCOME_KEY) == TaskOutcome.PARTIAL
    return TaskOutcome.PARTIAL if is_partial else TaskOutcome.COMPLETE


def is_paused(metadata: json_pb2.Struct) -> bool:
    """Return whether the metadata of a task says that it is paused."""
    return read_member(metadata, PAUSED_KEY) is True


@cache
def state_name(state: StateValue) -> str:
    """Return the name that people read: `completed` for TASK_STATE_COMPLETED."""
    return task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")
