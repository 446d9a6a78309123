"""Builds the question that requests approvals: text for people, data for programs."""

from collections.abc import Sequence
from typing import Any

from trunkline.core.json_values import has_member, struct_json, update_struct
from trunkline.tasks.approvals.answers import QUESTION_KEY
from trunkline.tasks.approvals.approval import Approval, render_arguments
from trunkline.tasks.content import DATA_TYPE, data_part
from trunkline.v1 import event_pb2, message_pb2, part_pb2


def build_question_parts(
    approvals: Sequence[Approval], accepted_modes: Sequence[str] = ()
) -> list[part_pb2.Part]:
    """Return the parts that request all pending approvals of a task; empty without any.

    The data part is left out if `accepted_modes` excludes JSON.
    """
    numbered = [
        (number, approval.requested)
        for number, approval in enumerate(approvals, start=1)
        if not approval.HasField("answered")
    ]
    if not numbered:
        return []
    text = part_pb2.Part(text=_text(numbered))
    update_struct(text.metadata, {QUESTION_KEY: True})
    if not accepts_json(accepted_modes):
        return [text]
    data = data_part({"approvals": [_fields(number, call) for number, call in numbered]})
    update_struct(data.metadata, {QUESTION_KEY: True})
    return [text, data]


def is_approval_question(message: message_pb2.Message) -> bool:
    """Return True if a message requests approvals."""
    return any(has_member(part.metadata, QUESTION_KEY) for part in message.parts)


def _text(numbered: Sequence[tuple[int, event_pb2.ApprovalRequested]]) -> str:
    if len(numbered) == 1:
        ((_, request),) = numbered
        return (
            f"{_call(request)} needs your approval ({request.approval_id}).\n"
            'Answer "approve", "reject" and why, or "edit" and other arguments as JSON.'
        )
    lines = [f"{number}. {_call(request)} ({request.approval_id})" for number, request in numbered]
    first, last = numbered[0][0], numbered[-1][0]
    return "\n".join(
        [
            f"{len(lines)} calls need your approval:",
            *lines,
            f'Answer "approve all", or a line for each: "approve {first}", "reject {last}" and '
            f'why, "edit {last}" and other arguments as JSON.',
        ]
    )


def _call(request: event_pb2.ApprovalRequested) -> str:
    path = " → ".join(request.path)
    return f"{path}: {request.tool} with {render_arguments(request.arguments)}"


def _fields(number: int, request: event_pb2.ApprovalRequested) -> dict[str, Any]:
    return {
        "approvalId": request.approval_id,
        "number": number,
        "tool": request.tool,
        "arguments": struct_json(request.arguments),
        "path": list(request.path),
    }


def accepts_json(modes: Sequence[str]) -> bool:
    """Return True if a caller that accepts these media types, or any type, takes a data part."""
    return not modes or any(mode.lower() in (DATA_TYPE, "application/*", "*/*") for mode in modes)
