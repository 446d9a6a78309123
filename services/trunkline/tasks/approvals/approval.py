"""Approvals: their decisions, and the arguments of the calls."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from trunkline.core.json_values import build_struct, canonical_json, has_same_json, struct_json
from trunkline.errors import ApprovalAnsweredError, ApprovalNotFoundError, InvalidArgumentError
from trunkline.v1 import event_pb2, json_pb2, snapshot_pb2

Approval = snapshot_pb2.ApprovalInfo


class ApprovalDecision(IntEnum):
    """The decisions that a person can make about an approval, with the numbers of the contract."""

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
    """The new arguments of an edit; else empty."""
    reason: str
    """The reason of a rejection; empty without one."""
    turn: int
    """The first turn that sees the answer: act on it there, and not again in later turns."""

    @classmethod
    def from_proto(cls, answer: event_pb2.ApprovalAnswered) -> "ApprovalAnswer":
        """Return the answer that a journaled event holds."""
        return cls(
            answer.approval_id,
            ApprovalDecision(answer.decision),
            struct_json(answer.arguments),
            answer.reason,
            answer.turn,
        )


_NAMES: Final = {
    event_pb2.APPROVAL_DECISION_APPROVED: "approved",
    event_pb2.APPROVAL_DECISION_EDITED: "approved with other arguments",
    event_pb2.APPROVAL_DECISION_REJECTED: "rejected",
}


def approval_task_id(approval_id: str) -> str:
    """Return the id of the task that requested an approval: the approval's id begins with it.

    Raises:
        ApprovalNotFoundError: the id is malformed.
    """
    task_id, dot, number = approval_id.rpartition(".")
    if not (task_id and dot and number.isdecimal()):
        raise ApprovalNotFoundError(approval_id)
    return task_id


def render_decision(decision: event_pb2.ApprovalDecision.ValueType) -> str:
    """Return a decision as text for people."""
    return _NAMES.get(decision, "open")


def pending_approvals(approvals: Iterable[Approval]) -> list[Approval]:
    """Return the approvals without an answer."""
    return [approval for approval in approvals if not approval.HasField("answered")]


def answers_since(approvals: Iterable[Approval], *, since: int) -> list[event_pb2.ApprovalAnswered]:
    """Return the answers for the turn `since` and later turns."""
    return [
        approval.answered
        for approval in approvals
        if approval.HasField("answered") and approval.answered.turn >= since
    ]


def is_same_decision(first: event_pb2.ApprovalAnswered, other: event_pb2.ApprovalAnswered) -> bool:
    """Return True if two answers have the same decision and arguments."""
    return first.decision == other.decision and has_same_json(first.arguments, other.arguments)


def check_same_decision(
    before: event_pb2.ApprovalAnswered, now: event_pb2.ApprovalAnswered
) -> None:
    """Check that an answer does not contradict an earlier one.

    Raises:
        ApprovalAnsweredError: the decision or the edited arguments differ.
    """
    if not is_same_decision(before, now):
        raise ApprovalAnsweredError(now.approval_id, render_decision(before.decision))


def check_answer(answer: event_pb2.ApprovalAnswered) -> None:
    """Check that an answer is complete.

    Raises:
        InvalidArgumentError: the decision or the arguments of an edit are missing, or the
            arguments are not valid JSON.
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


# Longer arguments are truncated for people.
_RENDERED_CHARS: Final = 1_000
# The nesting limit of arguments, below the limit of data parts, because messages contain them.
_MAX_DEPTH: Final = 16


def digest_call(approval_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest that seals an approval to a call: SERVER/TOOL with exact arguments.

    The arguments are sealed as canonical JSON.
    """
    content = canonical_json([approval_id, tool, arguments])
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def digest_answer(request: event_pb2.ApprovalRequested, answer: event_pb2.ApprovalAnswered) -> str:
    """Return the digest of the call that an answer approves; empty if it rejects the call."""
    if answer.decision == event_pb2.APPROVAL_DECISION_REJECTED:
        return ""
    is_edited = answer.decision == event_pb2.APPROVAL_DECISION_EDITED
    arguments = answer.arguments if is_edited else request.arguments
    return digest_call(request.approval_id, request.tool, struct_json(arguments))


def render_arguments(arguments: json_pb2.Struct) -> str:
    """Render arguments on one line for people. A long text is cut and names the missing count.

    Invisible and direction-changing characters are written as JSON escapes.
    """
    text = json.dumps(struct_json(arguments), ensure_ascii=False)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    excess = len(text) - _RENDERED_CHARS
    return text if excess <= 0 else f"{text[:_RENDERED_CHARS]}… ({excess:,} more characters)"


def parse_arguments(text: str) -> json_pb2.Struct:
    """Parse a call's arguments from JSON text.

    Raises:
        ValueError: the text is not a JSON object, or a message can't carry it.
    """
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError(text) from None
    if not isinstance(values, dict):
        raise ValueError(text)
    return build_struct(values, max_depth=_MAX_DEPTH)
