"""Parses and builds answers to approvals: data parts of programs, text lines of people."""

import re
from collections.abc import Sequence
from typing import Any, Final

from trunkline.core import json_values
from trunkline.core.task_states import INTERRUPTED
from trunkline.errors import ApprovalNotFoundError, InvalidArgumentError, RequestError
from trunkline.tasks.approvals.approval import (
    Approval,
    check_same_decision,
    digest_answer,
    is_same_decision,
    parse_arguments,
    pending_approvals,
)
from trunkline.tasks.content import data_part
from trunkline.v1 import event_pb2, json_pb2, message_pb2, part_pb2, snapshot_pb2

QUESTION_KEY: Final = "trunkline/approvals"
"""The metadata key that marks the parts of a question that request approvals."""
_DECISIONS: Final = {
    "approve": event_pb2.APPROVAL_DECISION_APPROVED,
    "reject": event_pb2.APPROVAL_DECISION_REJECTED,
    "edit": event_pb2.APPROVAL_DECISION_EDITED,
}


def is_approval_answer(part: part_pb2.Part) -> bool:
    """Return True if a data part is an answer to an approval."""
    if not part.HasField("data"):
        return False
    return isinstance(json_values.read_member(part.data.struct_value, "approvalId"), str)


def build_answer_message(
    answers: Sequence[event_pb2.ApprovalAnswered], *, message_id: str, task_id: str, context_id: str
) -> message_pb2.Message:
    """Return a message that answers approvals with data parts."""
    words = {decision: word for word, decision in _DECISIONS.items()}
    message = message_pb2.Message(
        message_id=message_id, task_id=task_id, context_id=context_id, role=message_pb2.ROLE_USER
    )
    for answer in answers:
        fields: dict[str, Any] = {
            "approvalId": answer.approval_id,
            "decision": words[answer.decision],
        }
        if answer.HasField("arguments"):
            fields["arguments"] = json_values.struct_json(answer.arguments)
        if answer.reason:
            fields["reason"] = answer.reason
        message.parts.append(data_part(fields))
    return message


def parse_data_answers(message: message_pb2.Message) -> list[event_pb2.ApprovalAnswered]:
    """Return the answers in the data parts of a message.

    Raises:
        InvalidArgumentError: an answer is malformed.
    """
    return [
        _from_data(part.data.struct_value, f"message.parts[{index}].data")
        for index, part in enumerate(message.parts)
        if is_approval_answer(part)
    ]


def _from_data(data: json_pb2.Struct, where: str) -> event_pb2.ApprovalAnswered:
    decision = _DECISIONS.get(json_values.read_text(data, "decision"))
    if decision is None:
        raise InvalidArgumentError(f"{where}.decision", "must be approve, reject or edit")
    answer = event_pb2.ApprovalAnswered(
        approval_id=json_values.read_text(data, "approvalId"),
        decision=decision,
        reason=json_values.read_text(data, "reason"),
    )
    if decision == event_pb2.APPROVAL_DECISION_EDITED:
        arguments = json_values.find_member(data, "arguments")
        if arguments is None or not arguments.HasField("struct_value"):
            raise InvalidArgumentError(f"{where}.arguments", "must be an object for an edit")
        answer.arguments.CopyFrom(arguments.struct_value)
    return answer


_WORDS: Final = {
    "approve": event_pb2.APPROVAL_DECISION_APPROVED,
    "approved": event_pb2.APPROVAL_DECISION_APPROVED,
    "reject": event_pb2.APPROVAL_DECISION_REJECTED,
    "rejected": event_pb2.APPROVAL_DECISION_REJECTED,
    "edit": event_pb2.APPROVAL_DECISION_EDITED,
}
# Words that may answer any question. They decide a call only if the task asks nothing else.
_BARE_WORDS: Final = {
    "yes": event_pb2.APPROVAL_DECISION_APPROVED,
    "no": event_pb2.APPROVAL_DECISION_REJECTED,
}

_LINE = re.compile(r"(?P<word>[A-Za-z]+)\b[.:,!]?\s*(?P<rest>.*)", re.DOTALL)
_TARGET = re.compile(r"(?P<target>[\w.-]*\w)")
_ANOTHER = re.compile(r"\s*(?:,|\band\b)\s*(?P<target>[\w.-]*\w)", re.IGNORECASE)
# Longer texts are not parsed for answers.
_TEXT_CHARS: Final = 16 * 1024


def parse_text_answers(
    text: str, task: snapshot_pb2.TaskSnapshot
) -> list[event_pb2.ApprovalAnswered]:
    """Return the answers in the lines of a text; none if a line is not an answer."""
    pending = pending_approvals(task.approvals)
    if not pending or len(text) > _TEXT_CHARS:
        return []
    parser = _LineParser(task.approvals, accepts_bare_words=not _has_other_question(task))
    by_id: dict[str, event_pb2.ApprovalAnswered] = {}
    for line in _lines(text):
        answers = parser.parse(line)
        if not answers:
            return []
        for answer in answers:
            before = by_id.setdefault(answer.approval_id, answer)
            if not is_same_decision(before, answer):
                return []
    return list(by_id.values())


def _lines(text: str) -> list[str]:
    """Split a text into answers; a line without an answer word continues the line before."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        match = _LINE.fullmatch(line.strip())
        is_start = match is not None and match["word"].lower() in _WORDS | _BARE_WORDS
        if lines and line.strip() and not is_start:
            lines[-1] += f"\n{line.strip()}"
        elif line.strip():
            lines.append(line.strip())
    return lines


class _LineParser:
    """Parses a line into answers to the approvals of a task."""

    def __init__(self, approvals: Sequence[Approval], *, accepts_bare_words: bool) -> None:
        self._accepts_bare_words = accepts_bare_words
        self._pending = [
            approval.requested.approval_id for approval in pending_approvals(approvals)
        ]
        self._ids = {approval.requested.approval_id.lower(): approval.requested.approval_id
                     for approval in approvals}  # fmt: skip
        self._ids |= {
            str(number): approval.requested.approval_id
            for number, approval in enumerate(approvals, start=1)
        }

    def parse(self, line: str) -> list[event_pb2.ApprovalAnswered]:
        """Return the answers of a line; empty if it is not an answer."""
        match = _LINE.fullmatch(line)
        if match is None:
            return []
        word = match["word"].lower()
        words = _WORDS | _BARE_WORDS if self._accepts_bare_words else _WORDS
        decision = words.get(word)
        if decision is None:
            return []
        targets, rest = self._targets(match["rest"])
        if not targets and len(self._pending) == 1:
            targets = list(self._pending)
        answers = [
            event_pb2.ApprovalAnswered(approval_id=target, decision=decision) for target in targets
        ]
        return answers if _apply_details(answers, decision, rest.strip(" \t\n:,.!")) else []

    def _targets(self, rest: str) -> tuple[list[str], str]:
        """Return the approvals that a line names, and the rest of the line."""
        match = _TARGET.match(rest)
        if match is not None and match["target"].lower() == "all":
            return list(self._pending), rest[match.end() :]
        targets: list[str] = []
        end = 0
        while match and (target := self._ids.get(match["target"].lower())):
            targets.append(target)
            end = match.end()
            match = _ANOTHER.match(rest, end)
        return targets, rest[end:]


def _apply_details(
    answers: Sequence[event_pb2.ApprovalAnswered],
    decision: event_pb2.ApprovalDecision.ValueType,
    rest: str,
) -> bool:
    """Set the reason or arguments of the answers. Return False if the rest is not valid."""
    if decision == event_pb2.APPROVAL_DECISION_REJECTED:
        for answer in answers:
            answer.reason = rest
        return True
    if decision == event_pb2.APPROVAL_DECISION_APPROVED:
        # Any other text may limit the approval.
        return rest.lower() in ("", "it", "please", "this")
    try:
        arguments = parse_arguments(rest)
    except ValueError:
        return False
    if len(answers) != 1:
        return False
    answers[0].arguments.CopyFrom(arguments)
    return True


def other_text(message: message_pb2.Message) -> str:
    """Return the text parts of a question that do not request approvals."""
    return " ".join(
        part.text
        for part in message.parts
        if part.HasField("text") and not json_values.has_member(part.metadata, QUESTION_KEY)
    )


def _has_other_question(task: snapshot_pb2.TaskSnapshot) -> bool:
    """Return True if the task or a child asks something else, which a plain "yes" may answer."""
    if other_text(task.task.status.message):
        return True
    requesters = {
        approval.requested.child_task_id for approval in pending_approvals(task.approvals)
    }
    return any(
        child.HasField("finished")
        and child.finished.state in INTERRUPTED
        and (child.started.task_id not in requesters or child.finished.text)
        for child in task.children
    )


def parse_answers(
    message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot
) -> list[event_pb2.ApprovalAnswered]:
    """Return the new answers of a message to a task's approvals.

    Repeated answers are left out. A text with a line that is not an answer has no answers. Data
    parts that are not answers are left to the agent.

    Raises:
        InvalidArgumentError: an answer in a data part is malformed, or the text contradicts it.
        ApprovalNotFoundError: a data part answers an approval that the task did not request.
        ApprovalAnsweredError: the approval has a different answer already.
    """
    if not task.approvals:
        return []
    text = "\n".join(part.text for part in message.parts if part.HasField("text"))
    answers, text_answers = parse_data_answers(message), parse_text_answers(text, task)
    if answers:
        _check_agreement(answers, text_answers)
    else:
        answers = text_answers
    known = {approval.requested.approval_id: approval for approval in task.approvals}
    new: dict[str, event_pb2.ApprovalAnswered] = {}
    for answer in answers:
        if answer.approval_id not in known:
            raise ApprovalNotFoundError(answer.approval_id)
        before = new.get(answer.approval_id)
        if before is None and known[answer.approval_id].HasField("answered"):
            before = known[answer.approval_id].answered
        if before is None:
            new[answer.approval_id] = answer
        else:
            check_same_decision(before, answer)
    return list(new.values())


def digest_approved_calls(
    message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot
) -> frozenset[str]:
    """Return the digests of the calls that a message approves; none if its answers are invalid."""
    try:
        answers = parse_answers(message, task)
    except RequestError:
        return frozenset()
    requests = {each.requested.approval_id: each.requested for each in task.approvals}
    digests = (digest_answer(requests[answer.approval_id], answer) for answer in answers)
    return frozenset(filter(None, digests))


def _check_agreement(
    answers: Sequence[event_pb2.ApprovalAnswered],
    text_answers: Sequence[event_pb2.ApprovalAnswered],
) -> None:
    """Check that the text and the data of a message do not contradict each other."""
    rejected = event_pb2.APPROVAL_DECISION_REJECTED
    rejected_in_text = {answer.approval_id: answer.decision == rejected for answer in text_answers}
    for answer in answers:
        is_rejected = answer.decision == rejected
        if rejected_in_text.get(answer.approval_id, is_rejected) != is_rejected:
            problem = "the text contradicts the data; send one of them"
            raise InvalidArgumentError("message.parts", problem)
