"""Approvals, their decisions, and the arguments of the calls that they are for."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from google.protobuf import struct_pb2

from trunkline.errors import ApprovalAnsweredError, ApprovalNotFoundError, InvalidArgumentError
from trunkline.tasks.content import to_json
from trunkline.v1 import event_pb2, snapshot_pb2

Approval = snapshot_pb2.ApprovalInfo


class ApprovalDecision(IntEnum):
    """The answers that a person can give to an approval, with the numbers of the contract."""

    APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
    """Make the call."""
    EDITED = event_pb2.APPROVAL_DECISION_EDITED
    """Make the call with the answer's `arguments` instead."""
    REJECTED = event_pb2.APPROVAL_DECISION_REJECTED
    """Do not make the call; the answer's `reason` may say why."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A person's answer to an approval, for the author of an agent."""

    approval_id: str
    decision: ApprovalDecision
    arguments: dict[str, Any]
    """Of an edit, the arguments to call with; else empty."""
    reason: str
    """Of a rejection, the reason if one was given; else empty."""
    turn: int
    """The first turn that sees the answer: act on it there, and not again in later ones."""

    @classmethod
    def from_proto(cls, answer: event_pb2.ApprovalAnswered) -> "ApprovalAnswer":
        """Return the answer that a journaled event holds."""
        return cls(
            answer.approval_id,
            ApprovalDecision(answer.decision),
            arguments_to_dict(answer.arguments),
            answer.reason,
            answer.turn,
        )


_NAMES: Final = {
    event_pb2.APPROVAL_DECISION_APPROVED: "approved",
    event_pb2.APPROVAL_DECISION_EDITED: "approved with other arguments",
    event_pb2.APPROVAL_DECISION_REJECTED: "rejected",
}


def approval_task_id(approval_id: str) -> str:
    """Return the id of the task that asks: an approval's id begins with it.

    Raises:
        ApprovalNotFoundError: no approval can have such an id.
    """
    task_id, dot, number = approval_id.rpartition(".")
    if not (task_id and dot and number.isdecimal()):
        raise ApprovalNotFoundError(approval_id)
    return task_id


def render_decision(decision: event_pb2.ApprovalDecision.ValueType) -> str:
    """Return what was decided, for people."""
    return _NAMES.get(decision, "open")


def pending_approvals(approvals: Iterable[Approval]) -> list[Approval]:
    """Return the approvals without an answer."""
    return [one for one in approvals if not one.HasField("answered")]


def answers_since(asked: Iterable[Approval], *, since: int) -> list[event_pb2.ApprovalAnswered]:
    """Return the answers that a turn, or a later one, acts on."""
    return [
        one.answered for one in asked if one.HasField("answered") and one.answered.turn >= since
    ]


def is_same_decision(one: event_pb2.ApprovalAnswered, other: event_pb2.ApprovalAnswered) -> bool:
    """Tell whether two answers decide the same."""
    return one.decision == other.decision and one.arguments == other.arguments


def check_same_decision(
    before: event_pb2.ApprovalAnswered, now: event_pb2.ApprovalAnswered
) -> None:
    """Refuse an answer that contradicts an earlier one.

    Raises:
        ApprovalAnsweredError: it decides otherwise, or edits otherwise.
    """
    if not is_same_decision(before, now):
        raise ApprovalAnsweredError(now.approval_id, render_decision(before.decision))


def check_answer(answer: event_pb2.ApprovalAnswered) -> None:
    """Refuse an answer that decides nothing.

    Raises:
        InvalidArgumentError: the decision or, of an edit, the arguments are missing, or no JSON.
    """
    if answer.decision not in _NAMES:
        raise InvalidArgumentError("decision", "is missing: approved, edited or rejected")
    if (answer.decision == event_pb2.APPROVAL_DECISION_EDITED) != answer.HasField("arguments"):
        problem = (
            "are missing"
            if answer.decision == event_pb2.APPROVAL_DECISION_EDITED
            else "are only for an edit"
        )
        raise InvalidArgumentError("arguments", problem)
    try:
        arguments_to_dict(answer.arguments)
    except ValueError:
        raise InvalidArgumentError("arguments", "hold a number that JSON doesn't know") from None


# What is shown of all arguments, on a line for people.
_SHOWN_CHARS: Final = 1_000
# Of arguments within each other: protobuf reads a hundred messages, and each takes three.
_LEVELS: Final = 16


def arguments_to_dict(values: struct_pb2.Struct) -> dict[str, Any]:
    """Return JSON values as people write them: a Struct knows no whole numbers."""
    found: dict[str, Any] = to_json(values)
    return found


def render_arguments(arguments: struct_pb2.Struct) -> str:
    """Render arguments on one line for people; long ones are cut, and the text says by how much.

    Invisible and direction-changing characters are written as JSON escapes.
    """
    text = json.dumps(arguments_to_dict(arguments), ensure_ascii=False, sort_keys=True)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    left = len(text) - _SHOWN_CHARS
    return text if left <= 0 else f"{text[:_SHOWN_CHARS]}… ({left:,} more characters)"


def parse_arguments(text: str) -> struct_pb2.Struct:
    """Return a call's arguments as a person has written them.

    Raises:
        ValueError: that is no JSON object, or one that no message can carry.
    """
    try:
        found = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_finite)
        if not isinstance(found, dict) or _levels(found) > _LEVELS:
            raise ValueError(text)
    except RecursionError:
        raise ValueError(text) from None
    arguments = struct_pb2.Struct()
    arguments.update(found)
    return arguments


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(digits)
    return number


def _levels(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0
    return 1 + max(map(_levels, inner), default=0)
