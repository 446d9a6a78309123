"""Answers to approvals in their form for people: a text, with a line for each answer."""

import re
from collections.abc import Sequence
from typing import Final

from trunkline.journal.states import INTERRUPTED
from trunkline.tasks.approvals.approval import Approval, ApprovalDecision, is_same, waiting
from trunkline.tasks.approvals.arguments import written_arguments
from trunkline.v1 import event_pb2, snapshot_pb2

_WORDS: Final = {
    "approve": ApprovalDecision.APPROVED,
    "approved": ApprovalDecision.APPROVED,
    "reject": ApprovalDecision.REJECTED,
    "rejected": ApprovalDecision.REJECTED,
    "edit": ApprovalDecision.EDITED,
}
# Said to any question, so they answer for a call only when nothing else was asked.
_BARE_WORDS: Final = {"yes": ApprovalDecision.APPROVED, "no": ApprovalDecision.REJECTED}

_LINE = re.compile(r"(?P<word>[A-Za-z]+)\b[.:,!]?\s*(?P<rest>.*)", re.DOTALL)
_TARGET = re.compile(r"(?P<target>[\w.-]*\w)")
_ANOTHER = re.compile(r"\s*(?:,|\band\b)\s*(?P<target>[\w.-]*\w)", re.IGNORECASE)
# What is read of a text.
_TEXT_CHARS: Final = 16 * 1024


def answers_in_text(text: str, task: snapshot_pb2.TaskSnapshot) -> list[event_pb2.ApprovalAnswered]:
    """Return what the lines of a text answer; nothing if one of them can't be understood."""
    pending = waiting(task.approvals)
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
            if not is_same(before, answer):
                return []
    return list(found.values())


def _lines(text: str) -> list[str]:
    """Return a line for each answer: one that begins with none of their words goes on."""
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
        self._pending = [one.requested.approval_id for one in waiting(approvals)]
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
        decision = _WORDS.get(word)
        if decision is None and self._may_be_bare:
            decision = _BARE_WORDS.get(word)
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
    if decision == ApprovalDecision.REJECTED:
        for answer in answers:
            answer.reason = rest
        return True
    if decision == ApprovalDecision.APPROVED:
        # Whoever says more than yes may mean something else.
        return rest.lower() in ("", "it", "please", "this")
    try:
        arguments = written_arguments(rest)
    except ValueError:
        return False
    if len(answers) != 1:
        return False
    answers[0].arguments.CopyFrom(arguments)
    return True


def _asks_otherwise(task: snapshot_pb2.TaskSnapshot) -> bool:
    """Tell whether a child waits for something else: a plain yes may be meant for that."""
    asking = {one.requested.child_task_id for one in waiting(task.approvals)}
    return any(
        child.HasField("finished")
        and child.finished.state in INTERRUPTED
        and (child.started.task_id not in asking or child.finished.text)
        for child in task.children
    )
