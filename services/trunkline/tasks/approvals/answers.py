"""Answers to approvals in their form for programs: data parts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import struct_pb2

from trunkline.errors import ApprovalNotFoundError, InvalidArgumentError
from trunkline.task_states import INTERRUPTED
from trunkline.tasks.approvals.approval import (
    Approval,
    arguments_to_dict,
    check_same_decision,
    is_same_decision,
    parse_arguments,
    pending_approvals,
)
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2

MEDIA_TYPE: Final = "application/json"
_DECISIONS: Final = {
    "approve": event_pb2.APPROVAL_DECISION_APPROVED,
    "reject": event_pb2.APPROVAL_DECISION_REJECTED,
    "edit": event_pb2.APPROVAL_DECISION_EDITED,
}


def is_approval_answer(part: part_pb2.Part) -> bool:
    """Tell whether a part is an answer to an approval, in its form for programs."""
    if not part.HasField("data"):
        return False
    fields = part.data.struct_value.fields
    return "approvalId" in fields and fields["approvalId"].HasField("string_value")


def build_answer_message(
    answers: Sequence[event_pb2.ApprovalAnswered], *, message_id: str, task_id: str, context_id: str
) -> message_pb2.Message:
    """Return the message that gives a task answers, as a program would."""
    words = {decision: word for word, decision in _DECISIONS.items()}
    message = message_pb2.Message(
        message_id=message_id, task_id=task_id, context_id=context_id, role=message_pb2.ROLE_USER
    )
    for answer in answers:
        said: dict[str, Any] = {
            "approvalId": answer.approval_id,
            "decision": words[answer.decision],
        }
        if answer.HasField("arguments"):
            said["arguments"] = arguments_to_dict(answer.arguments)
        if answer.reason:
            said["reason"] = answer.reason
        message.parts.append(build_data_part(said))
    return message


def parse_data_answers(message: message_pb2.Message) -> list[event_pb2.ApprovalAnswered]:
    """Return what the data parts of a message answer.

    Raises:
        InvalidArgumentError: one that answers is wrong in itself.
    """
    return [
        _from_data(part.data.struct_value, f"message.parts[{index}].data")
        for index, part in enumerate(message.parts)
        if is_approval_answer(part)
    ]


def build_data_part(value: Mapping[str, Any]) -> part_pb2.Part:
    """Return a part of JSON."""
    part = part_pb2.Part(media_type=MEDIA_TYPE)
    part.data.struct_value.update(dict(value))
    return part


def _from_data(data: struct_pb2.Struct, where: str) -> event_pb2.ApprovalAnswered:
    fields = data.fields
    decision = _DECISIONS.get(fields["decision"].string_value if "decision" in fields else "")
    if decision is None:
        raise InvalidArgumentError(f"{where}.decision", "must be approve, reject or edit")
    answer = event_pb2.ApprovalAnswered(
        approval_id=fields["approvalId"].string_value, decision=decision
    )
    if "reason" in fields:
        answer.reason = fields["reason"].string_value
    if decision == event_pb2.APPROVAL_DECISION_EDITED:
        if "arguments" not in fields or not fields["arguments"].HasField("struct_value"):
            raise InvalidArgumentError(f"{where}.arguments", "must be an object, for an edit")
        answer.arguments.CopyFrom(fields["arguments"].struct_value)
    return answer


_WORDS: Final = {
    "approve": event_pb2.APPROVAL_DECISION_APPROVED,
    "approved": event_pb2.APPROVAL_DECISION_APPROVED,
    "reject": event_pb2.APPROVAL_DECISION_REJECTED,
    "rejected": event_pb2.APPROVAL_DECISION_REJECTED,
    "edit": event_pb2.APPROVAL_DECISION_EDITED,
}
# Said to any question, so they answer for a call only when nothing else was asked.
_BARE_WORDS: Final = {
    "yes": event_pb2.APPROVAL_DECISION_APPROVED,
    "no": event_pb2.APPROVAL_DECISION_REJECTED,
}

_LINE = re.compile(r"(?P<word>[A-Za-z]+)\b[.:,!]?\s*(?P<rest>.*)", re.DOTALL)
_TARGET = re.compile(r"(?P<target>[\w.-]*\w)")
_ANOTHER = re.compile(r"\s*(?:,|\band\b)\s*(?P<target>[\w.-]*\w)", re.IGNORECASE)
# What is read of a text.
_TEXT_CHARS: Final = 16 * 1024


def parse_text_answers(
    text: str, task: snapshot_pb2.TaskSnapshot
) -> list[event_pb2.ApprovalAnswered]:
    """Return what the lines of a text answer; nothing if one of them can't be understood."""
    pending = pending_approvals(task.approvals)
    if not pending or len(text) > _TEXT_CHARS:
        return []
    reader = _LineReader(task.approvals, may_be_bare=not _asks_otherwise(task))
    found: dict[str, event_pb2.ApprovalAnswered] = {}
    for line in _lines(text):
        answers = reader.read(line)
        if not answers:
            return []
        for answer in answers:
            before = found.setdefault(answer.approval_id, answer)
            if not is_same_decision(before, answer):
                return []
    return list(found.values())


def _lines(text: str) -> list[str]:
    """Split a text into answers; a line without an answer word continues the one before."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        found = _LINE.fullmatch(line.strip())
        begins = found is not None and found["word"].lower() in _WORDS | _BARE_WORDS
        if lines and line.strip() and not begins:
            lines[-1] += f"\n{line.strip()}"
        elif line.strip():
            lines.append(line.strip())
    return lines


class _LineReader:
    """Reads what a line answers, by the approvals that a task has asked for."""

    def __init__(self, approvals: Sequence[Approval], *, may_be_bare: bool) -> None:
        self._may_be_bare = may_be_bare
        self._pending = [one.requested.approval_id for one in pending_approvals(approvals)]
        self._ids = {one.requested.approval_id.lower(): one.requested.approval_id
                     for one in approvals}  # fmt: skip
        self._ids |= {
            str(number): one.requested.approval_id for number, one in enumerate(approvals, start=1)
        }

    def read(self, line: str) -> list[event_pb2.ApprovalAnswered]:
        """Return the answers of a line; none: it can't be understood."""
        found = _LINE.fullmatch(line)
        if found is None:
            return []
        word = found["word"].lower()
        words = _WORDS | _BARE_WORDS if self._may_be_bare else _WORDS
        decision = words.get(word)
        if decision is None:
            return []
        targets, rest = self._targets(found["rest"])
        if not targets and len(self._pending) == 1:
            targets = list(self._pending)
        answers = [
            event_pb2.ApprovalAnswered(approval_id=target, decision=decision) for target in targets
        ]
        return answers if _complete(answers, decision, rest.strip(" \t\n:,.!")) else []

    def _targets(self, rest: str) -> tuple[list[str], str]:
        """Return the approvals that a line names, and what follows."""
        found = _TARGET.match(rest)
        if found is not None and found["target"].lower() == "all":
            return list(self._pending), rest[found.end() :]
        targets: list[str] = []
        end = 0
        while found and (target := self._ids.get(found["target"].lower())):
            targets.append(target)
            end = found.end()
            found = _ANOTHER.match(rest, end)
        return targets, rest[end:]


def _complete(
    answers: Sequence[event_pb2.ApprovalAnswered],
    decision: event_pb2.ApprovalDecision.ValueType,
    rest: str,
) -> bool:
    """Put what follows into answers; False: it makes no sense there."""
    if decision == event_pb2.APPROVAL_DECISION_REJECTED:
        for answer in answers:
            answer.reason = rest
        return True
    if decision == event_pb2.APPROVAL_DECISION_APPROVED:
        # More than a plain yes may mean something else.
        return rest.lower() in ("", "it", "please", "this")
    try:
        arguments = parse_arguments(rest)
    except ValueError:
        return False
    if len(answers) != 1:
        return False
    answers[0].arguments.CopyFrom(arguments)
    return True


def _asks_otherwise(task: snapshot_pb2.TaskSnapshot) -> bool:
    """Tell whether a child waits for something else: a plain yes may be meant for that."""
    asking = {one.requested.child_task_id for one in pending_approvals(task.approvals)}
    return any(
        child.HasField("finished")
        and child.finished.state in INTERRUPTED
        and (child.started.task_id not in asking or child.finished.text)
        for child in task.children
    )


def parse_answers(
    message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot
) -> list[event_pb2.ApprovalAnswered]:
    """Return what a message newly answers of a task's approvals.

    What was answered before, and the same way, is left out; of a text that can't be understood
    nothing is taken. Data that answers no approval is left to the agent.

    Raises:
        InvalidArgumentError: data that answers is wrong in itself, or its text says the opposite.
        ApprovalNotFoundError: data answers an approval that the task doesn't ask for.
        ApprovalAnsweredError: it was answered otherwise before.
    """
    if not task.approvals:
        return []
    text = "\n".join(part.text for part in message.parts if part.HasField("text"))
    answers, said = parse_data_answers(message), parse_text_answers(text, task)
    if answers:
        _check_agreement(answers, said)
    else:
        answers = said
    known = {one.requested.approval_id: one for one in task.approvals}
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


def _check_agreement(
    answers: Sequence[event_pb2.ApprovalAnswered], said: Sequence[event_pb2.ApprovalAnswered]
) -> None:
    """Refuse a message whose text and data say opposite things of one approval."""
    rejected = event_pb2.APPROVAL_DECISION_REJECTED
    in_words = {one.approval_id: one.decision == rejected for one in said}
    for answer in answers:
        is_rejected = answer.decision == rejected
        if in_words.get(answer.approval_id, is_rejected) != is_rejected:
            problem = "the text answers otherwise than the data; send one of them"
            raise InvalidArgumentError("message.parts", problem)
