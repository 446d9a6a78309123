"""The state machine of a task: its states, and one table of the legal transitions."""

from enum import StrEnum

from trunkline.errors import InvalidAgentResponseError
from trunkline.task_states import INTERRUPTED, TERMINAL, state_name
from trunkline.v1 import task_pb2

__all__ = [
    "INTERRUPTED",
    "TERMINAL",
    "TRANSITIONS",
    "State",
    "TaskState",
    "check_transition",
    "state_name",
]

State = task_pb2.TaskState


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
    def from_proto(cls, state: task_pb2.TaskState.ValueType) -> "TaskState":
        """Return the member for a state of the contract. ValueError for an unspecified one."""
        return cls(state_name(state))


# Working to working reports progress.
_ENDS = TERMINAL | INTERRUPTED
TRANSITIONS: dict[task_pb2.TaskState.ValueType, frozenset[task_pb2.TaskState.ValueType]] = {
    State.TASK_STATE_UNSPECIFIED: frozenset({State.TASK_STATE_SUBMITTED}),
    State.TASK_STATE_SUBMITTED: _ENDS | {State.TASK_STATE_WORKING},
    State.TASK_STATE_WORKING: _ENDS | {State.TASK_STATE_WORKING},
    State.TASK_STATE_INPUT_REQUIRED: frozenset(
        {State.TASK_STATE_WORKING, State.TASK_STATE_CANCELED, State.TASK_STATE_FAILED}
    ),
    State.TASK_STATE_AUTH_REQUIRED: _ENDS | {State.TASK_STATE_WORKING},
    **{state: frozenset() for state in TERMINAL},
}


def check_transition(
    agent: str, before: task_pb2.TaskState.ValueType, after: task_pb2.TaskState.ValueType
) -> None:
    """Refuse a transition that the table does not have.

    Raises:
        InvalidAgentResponseError: the transition is illegal, which is a defect of the agent.
    """
    if after not in TRANSITIONS[before]:
        raise InvalidAgentResponseError(
            agent, f"a task can't go from {state_name(before)} to {state_name(after)}"
        )
