"""An approval: what is asked of a person, and what may be decided of it."""

from collections.abc import Iterable
from typing import Final

from trunkline.errors import ApprovalAnsweredError, ApprovalNotFoundError, InvalidArgumentError
from trunkline.tasks.approvals.arguments import plain
from trunkline.v1 import event_pb2, snapshot_pb2

Approval = snapshot_pb2.ApprovalInfo


class ApprovalDecision:
    """What a person may decide: what `decision` of an ApprovalAnswered is one of."""

    APPROVED: Final = event_pb2.APPROVAL_DECISION_APPROVED
    """Call it."""
    EDITED: Final = event_pb2.APPROVAL_DECISION_EDITED
    """Call it with the answer's `arguments` instead."""
    REJECTED: Final = event_pb2.APPROVAL_DECISION_REJECTED
    """Don't; the answer's `reason` may say why."""


_NAMES: Final = {
    ApprovalDecision.APPROVED: "approved",
    ApprovalDecision.EDITED: "approved with other arguments",
    ApprovalDecision.REJECTED: "rejected",
}


def task_of(approval_id: str) -> str:
    """Return the id of the task that asks: an approval's id begins with it.

    Raises:
        ApprovalNotFoundError: no approval can have such an id.
    """
    task_id, dot, number = approval_id.rpartition(".")
    if not (task_id and dot and number.isdecimal()):
        raise ApprovalNotFoundError(approval_id)
    return task_id


def decision_name(decision: event_pb2.ApprovalDecision.ValueType) -> str:
    """Return what was decided, for people."""
    return _NAMES.get(decision, "open")


def waiting(approvals: Iterable[Approval]) -> list[Approval]:
    """Return the approvals that nobody has answered yet."""
    return [one for one in approvals if not one.HasField("answered")]


def answers_of(asked: Iterable[Approval], *, since: int) -> list[event_pb2.ApprovalAnswered]:
    """Return the answers that a turn, or a later one, acts on."""
    return [
        one.answered for one in asked if one.HasField("answered") and one.answered.turn >= since
    ]


def is_same(one: event_pb2.ApprovalAnswered, other: event_pb2.ApprovalAnswered) -> bool:
    """Tell whether two answers decide the same."""
    return one.decision == other.decision and one.arguments == other.arguments


def check_same(before: event_pb2.ApprovalAnswered, now: event_pb2.ApprovalAnswered) -> None:
    """Refuse an answer that contradicts one that was given before.

    Raises:
        ApprovalAnsweredError: it decides otherwise, or edits otherwise.
    """
    if not is_same(before, now):
        raise ApprovalAnsweredError(now.approval_id, decision_name(before.decision))


def check_answer(answer: event_pb2.ApprovalAnswered) -> None:
    """Refuse an answer that decides nothing.

    Raises:
        InvalidArgumentError: the decision or, of an edit, the arguments are missing, or no JSON.
    """
    if answer.decision not in _NAMES:
        raise InvalidArgumentError("decision", "is missing: approved, edited or rejected")
    if (answer.decision == ApprovalDecision.EDITED) != answer.HasField("arguments"):
        problem = (
            "are missing" if answer.decision == ApprovalDecision.EDITED else "are only for an edit"
        )
        raise InvalidArgumentError("arguments", problem)
    try:
        plain(answer.arguments)
    except ValueError:
        raise InvalidArgumentError("arguments", "hold a number that JSON doesn't know") from None
