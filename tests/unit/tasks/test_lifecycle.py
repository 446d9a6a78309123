"""The table of state transitions."""

import pytest

from trunkline.errors import InvalidAgentResponseError
from trunkline.tasks.lifecycle import (
    INTERRUPTED,
    TERMINAL,
    TRANSITIONS,
    State,
    check_transition,
    state_name,
)


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State.values())


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_no_state_follows_a_terminal_one(state: State.ValueType) -> None:
    for after in State.values():
        with pytest.raises(InvalidAgentResponseError, match=state_name(state)):
            check_transition("tested", state, after)


@pytest.mark.parametrize("state", sorted(set(State.values()) - TERMINAL - {0}))
def test_an_unfinished_task_can_be_canceled_or_fail(state: State.ValueType) -> None:
    check_transition("tested", state, State.TASK_STATE_CANCELED)
    check_transition("tested", state, State.TASK_STATE_FAILED)


@pytest.mark.parametrize("state", sorted(INTERRUPTED))
def test_an_interrupted_task_can_resume_working(state: State.ValueType) -> None:
    check_transition("tested", state, State.TASK_STATE_WORKING)


def test_a_waiting_task_cannot_complete_directly() -> None:
    with pytest.raises(InvalidAgentResponseError, match="from input-required to completed"):
        check_transition("tested", State.TASK_STATE_INPUT_REQUIRED, State.TASK_STATE_COMPLETED)
