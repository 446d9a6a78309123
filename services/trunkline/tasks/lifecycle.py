"""The state machine of a task: one table of the legal transitions."""

from trunkline.core.task_states import INTERRUPTED, TERMINAL, TaskState, state_name
from trunkline.errors import InvalidAgentResponseError
from trunkline.v1 import event_pb2, task_pb2

__all__ = [
    "INTERRUPTED",
    "TERMINAL",
    "TRANSITIONS",
    "State",
    "TaskState",
    "build_status_event",
    "check_transition",
    "state_name",
]

State = task_pb2.TaskState


_ENDS = TERMINAL | INTERRUPTED
# The transition from `working` to itself reports progress.
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
    """Check that the table has a transition.

    Raises:
        InvalidAgentResponseError: the transition is illegal, which is a defect of the agent.
    """
    if after not in TRANSITIONS[before]:
        raise InvalidAgentResponseError(
            agent, f"a task can't go from {state_name(before)} to {state_name(after)}"
        )


def build_status_event(state: task_pb2.TaskState.ValueType) -> event_pb2.Event:
    """Return the event of a state without a timestamp: readers use the time of the commit."""
    event = event_pb2.Event()
    # Set in place: protobuf copies a message that is passed to another.
    event.status.status.state = state
    return event
