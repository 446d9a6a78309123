"""The message that asks for approvals: text for people, data for programs."""

from collections.abc import Sequence
from typing import Any, Final

from trunkline.tasks.approvals.answers import MEDIA_TYPE, build_data_part
from trunkline.tasks.approvals.approval import Approval, arguments_to_dict, render_arguments
from trunkline.v1 import event_pb2, message_pb2, part_pb2

_QUESTION_KEY: Final = "trunkline/approvals"
"""In the metadata of the parts of a question that ask for approvals."""


def build_question_parts(
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
    text.metadata[_QUESTION_KEY] = True
    if not _takes_data(accepted_modes):
        return [text]
    data = build_data_part({"approvals": [_fields(number, asked) for number, asked in numbered]})
    data.metadata[_QUESTION_KEY] = True
    return [text, data]


def other_text(message: message_pb2.Message) -> str:
    """Return what a question says beside asking for approvals: its other text parts."""
    return " ".join(
        part.text
        for part in message.parts
        if part.HasField("text") and _QUESTION_KEY not in part.metadata.fields
    )


def is_approval_question(message: message_pb2.Message) -> bool:
    """Tell whether a question asks for approvals."""
    return any(_QUESTION_KEY in part.metadata.fields for part in message.parts)


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
    return f"{by}: {asked.tool} with {render_arguments(asked.arguments)}"


def _fields(number: int, asked: event_pb2.ApprovalRequested) -> dict[str, Any]:
    return {
        "approvalId": asked.approval_id,
        "number": number,
        "tool": asked.tool,
        "arguments": arguments_to_dict(asked.arguments),
        "path": list(asked.path),
    }


def _takes_data(modes: Sequence[str]) -> bool:
    return not modes or any(mode.lower() in (MEDIA_TYPE, "application/*", "*/*") for mode in modes)
