"""What people say to calls that wait for their approval: how they are asked, and how answers read.

A task that waits for approvals ends its turn with a question that holds them twice, for people and
for programs: as text, and as a data part `{"approvals": [{"approvalId", "number", "tool",
"arguments", "path"}, …]}`. The next message answers, in text, a line for each answer:

    approve            yes            approve all     approve 2      approve 1, 3      approve ID
    reject             no             reject all      reject 2 why   reject why        reject ID why
    edit {"n": 1}      edit 2 {"n": 1}                edit ID {"n": 1}

or in data parts `{"approvalId", "decision": "approve" | "reject" | "edit", "arguments", "reason"}`.
A number is an approval's place among all that the task has asked for, so it never comes to mean
another one. A line without one is for the only approval that waits. A text with a line that is
none of these answers nothing. Pure.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf import struct_pb2

from trunkline.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    InvalidArgumentError,
)
from trunkline.journal.states import INTERRUPTED
from trunkline.tasks.turn.content import json_of
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2

Approval = snapshot_pb2.ApprovalInfo

MEDIA_TYPE: Final = "application/json"
QUESTION_KEY: Final = "trunkline/approvals"
"""In the metadata of the parts of a question that ask for approvals."""

_APPROVED: Final = event_pb2.APPROVAL_DECISION_APPROVED
_EDITED: Final = event_pb2.APPROVAL_DECISION_EDITED
_REJECTED: Final = event_pb2.APPROVAL_DECISION_REJECTED
_WORDS: Final = {
    "approve": _APPROVED,
    "approved": _APPROVED,
    "reject": _REJECTED,
    "rejected": _REJECTED,
    "edit": _EDITED,
}
# Said to any question, so they answer for a call only when nothing else was asked.
_BARE_WORDS: Final = {"yes": _APPROVED, "no": _REJECTED}
_DATA_WORDS: Final = {"approve": _APPROVED, "reject": _REJECTED, "edit": _EDITED}
_NAMES: Final = {_APPROVED: "approved", _EDITED: "approved with other arguments",
                 _REJECTED: "rejected"}  # fmt: skip

_LINE = re.compile(r"(?P<word>[A-Za-z]+)\b[.:,!]?\s*(?P<rest>.*)", re.DOTALL)
_TARGET = re.compile(r"(?P<target>[\w.-]*\w)")
_ANOTHER = re.compile(r"\s*(?:,|\band\b)\s*(?P<target>[\w.-]*\w)", re.IGNORECASE)
# What is read of a text; and of an argument, on a line for people.
_TEXT_CHARS: Final = 16 * 1024
_SHOWN_CHARS: Final = 1_000
# Of arguments within each other: protobuf reads a hundred messages, and each takes three.
_LEVELS: Final = 16


def waiting(approvals: Iterable[Approval]) -> list[Approval]:
    """Return the approvals that nobody has answered yet."""
    return [one for one in approvals if not one.HasField("answered")]


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


def is_answer(part: part_pb2.Part) -> bool:
    """Tell whether a part is an answer to an approval, in its form for programs."""
    if not part.HasField("data"):
        return False
    fields = part.data.struct_value.fields
    return "approvalId" in fields and fields["approvalId"].HasField("string_value")


def read_answers(
    message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot
) -> list[event_pb2.ApprovalAnswered]:
    """Return what a message newly answers of a task's approvals.

    What was answered before, and the same way, is left out; of a text that can't be understood
    nothing is taken. Data that answers no approval is left to the agent.

    Raises:
        InvalidArgumentError: data that answers is wrong in itself.
        ApprovalNotFoundError: data answers an approval that the task doesn't ask for.
        ApprovalAnsweredError: it was answered otherwise before.
    """
    if not task.approvals:
        return []
    answers = [
        _from_data(part.data.struct_value, f"message.parts[{index}].data")
        for index, part in enumerate(message.parts)
        if is_answer(part)
    ]
    if not answers:
        text = "\n".join(part.text for part in message.parts if part.HasField("text"))
        answers = _from_text(text, task)
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
            check_same(before, answer)
    return list(new.values())


def check_same(before: event_pb2.ApprovalAnswered, now: event_pb2.ApprovalAnswered) -> None:
    """Refuse an answer that contradicts one that was given before.

    Raises:
        ApprovalAnsweredError: it decides otherwise, or edits otherwise.
    """
    if before.decision != now.decision or before.arguments != now.arguments:
        raise ApprovalAnsweredError(now.approval_id, decision_name(before.decision))


def check_answer(answer: event_pb2.ApprovalAnswered) -> None:
    """Refuse an answer that decides nothing.

    Raises:
        InvalidArgumentError: the decision or, of an edit, the arguments are missing, or no JSON.
    """
    if answer.decision not in _NAMES:
        raise InvalidArgumentError("decision", "is missing: approved, edited or rejected")
    if (answer.decision == _EDITED) != answer.HasField("arguments"):
        problem = "are missing" if answer.decision == _EDITED else "are only for an edit"
        raise InvalidArgumentError("arguments", problem)
    try:
        plain(answer.arguments)
    except ValueError:
        raise InvalidArgumentError("arguments", "hold a number that JSON doesn't know") from None


def answering(
    answers: Sequence[event_pb2.ApprovalAnswered], *, message_id: str, task_id: str, context_id: str
) -> message_pb2.Message:
    """Return the message that gives a task answers, as a program would."""
    words = {decision: word for word, decision in _DATA_WORDS.items()}
    message = message_pb2.Message(
        message_id=message_id, task_id=task_id, context_id=context_id, role=message_pb2.ROLE_USER
    )
    for answer in answers:
        said: dict[str, Any] = {
            "approvalId": answer.approval_id,
            "decision": words[answer.decision],
        }
        if answer.HasField("arguments"):
            said["arguments"] = plain(answer.arguments)
        if answer.reason:
            said["reason"] = answer.reason
        message.parts.append(_data_part(said))
    return message


def question_parts(
    approvals: Sequence[Approval], accepted_modes: Sequence[str] = ()
) -> list[part_pb2.Part]:
    """Return the parts that ask for all of a task's approvals that wait; none if none do.

    The part for programs is left out for a caller that says which media types it takes, and
    doesn't take that one.
    """
    numbered = [
        (number, one.requested)
        for number, one in enumerate(approvals, start=1)
        if not one.HasField("answered")
    ]
    if not numbered:
        return []
    text = part_pb2.Part(text=_text(numbered))
    text.metadata[QUESTION_KEY] = True
    if not _takes_data(accepted_modes):
        return [text]
    data = _data_part({"approvals": [_fields(number, asked) for number, asked in numbered]})
    data.metadata[QUESTION_KEY] = True
    return [text, data]


def said_besides(message: message_pb2.Message) -> str:
    """Return what a question says beside asking for approvals: its other text parts."""
    return " ".join(
        part.text
        for part in message.parts
        if part.HasField("text") and QUESTION_KEY not in part.metadata.fields
    )


def asks_for(message: message_pb2.Message) -> bool:
    """Tell whether a question asks for approvals."""
    return any(QUESTION_KEY in part.metadata.fields for part in message.parts)


def shown(arguments: struct_pb2.Struct) -> str:
    """Return arguments on a line, for people; long ones are cut."""
    text = json.dumps(plain(arguments), ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def plain(values: struct_pb2.Struct) -> dict[str, Any]:
    """Return JSON values as people write them: a Struct knows no whole numbers."""
    found: dict[str, Any] = json_of(values)
    return found


def written_arguments(text: str) -> struct_pb2.Struct:
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


def _text(numbered: Sequence[tuple[int, event_pb2.ApprovalRequested]]) -> str:
    if len(numbered) == 1:
        ((_, asked),) = numbered
        return (
            f"{_call(asked)} needs your approval ({asked.approval_id}).\n"
            'Answer "approve", "reject" and why, or "edit" and other arguments as JSON.'
        )
    lines = [f"{number}. {_call(asked)} ({asked.approval_id})" for number, asked in numbered]
    first, last = numbered[0][0], numbered[-1][0]
    return "\n".join(
        [
            f"{len(lines)} calls need your approval:",
            *lines,
            f'Answer "approve all", or a line for each: "approve {first}", "reject {last}" and '
            f'why, "edit {last}" and other arguments as JSON.',
        ]
    )


def _call(asked: event_pb2.ApprovalRequested) -> str:
    by = " → ".join(asked.path)
    return f"{by}: {asked.tool} with {shown(asked.arguments)}"


def _fields(number: int, asked: event_pb2.ApprovalRequested) -> dict[str, Any]:
    return {
        "approvalId": asked.approval_id,
        "number": number,
        "tool": asked.tool,
        "arguments": plain(asked.arguments),
        "path": list(asked.path),
    }


def _data_part(value: Mapping[str, Any]) -> part_pb2.Part:
    part = part_pb2.Part(media_type=MEDIA_TYPE)
    part.data.struct_value.update(dict(value))
    return part


def _takes_data(modes: Sequence[str]) -> bool:
    return not modes or any(mode.lower() in (MEDIA_TYPE, "application/*", "*/*") for mode in modes)


def _from_data(data: struct_pb2.Struct, where: str) -> event_pb2.ApprovalAnswered:
    fields = data.fields
    decision = _DATA_WORDS.get(fields["decision"].string_value if "decision" in fields else "")
    if decision is None:
        raise InvalidArgumentError(f"{where}.decision", "must be approve, reject or edit")
    answer = event_pb2.ApprovalAnswered(
        approval_id=fields["approvalId"].string_value, decision=decision
    )
    if "reason" in fields:
        answer.reason = fields["reason"].string_value
    if decision == _EDITED:
        if "arguments" not in fields or not fields["arguments"].HasField("struct_value"):
            raise InvalidArgumentError(f"{where}.arguments", "must be an object, for an edit")
        answer.arguments.CopyFrom(fields["arguments"].struct_value)
    return answer


def _from_text(text: str, task: snapshot_pb2.TaskSnapshot) -> list[event_pb2.ApprovalAnswered]:
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
            if before.decision != answer.decision or before.arguments != answer.arguments:
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
    if decision == _REJECTED:
        for answer in answers:
            answer.reason = rest
        return True
    if decision == _APPROVED:
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


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(digits)
    return number


def _levels(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner: Iterable[object] = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_levels, inner), default=0)


def _asks_otherwise(task: snapshot_pb2.TaskSnapshot) -> bool:
    """Tell whether a child waits for something else: a plain yes may be meant for that."""
    asking = {one.requested.child_task_id for one in waiting(task.approvals)}
    return any(
        child.HasField("finished")
        and child.finished.state in INTERRUPTED
        and (child.started.task_id not in asking or child.finished.text)
        for child in task.children
    )
