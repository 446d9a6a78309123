"""Answers to approvals in their form for programs: data parts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import struct_pb2

from trunkline.errors import InvalidArgumentError
from trunkline.tasks.approvals.approval import ApprovalDecision
from trunkline.tasks.approvals.arguments import plain
from trunkline.v1 import event_pb2, message_pb2, part_pb2

MEDIA_TYPE: Final = "application/json"
_DECISIONS: Final = {
    "approve": ApprovalDecision.APPROVED,
    "reject": ApprovalDecision.REJECTED,
    "edit": ApprovalDecision.EDITED,
}


def is_answer(part: part_pb2.Part) -> bool:
    """Tell whether a part is an answer to an approval, in its form for programs."""
    if not part.HasField("data"):
        return False
    fields = part.data.struct_value.fields
    return "approvalId" in fields and fields["approvalId"].HasField("string_value")


def answering(
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
            said["arguments"] = plain(answer.arguments)
        if answer.reason:
            said["reason"] = answer.reason
        message.parts.append(data_part(said))
    return message


def answers_in_data(message: message_pb2.Message) -> list[event_pb2.ApprovalAnswered]:
    """Return what the data parts of a message answer.

    Raises:
        InvalidArgumentError: one that answers is wrong in itself.
    """
    return [
        _from_data(part.data.struct_value, f"message.parts[{index}].data")
        for index, part in enumerate(message.parts)
        if is_answer(part)
    ]


def data_part(value: Mapping[str, Any]) -> part_pb2.Part:
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
    if decision == ApprovalDecision.EDITED:
        if "arguments" not in fields or not fields["arguments"].HasField("struct_value"):
            raise InvalidArgumentError(f"{where}.arguments", "must be an object, for an edit")
        answer.arguments.CopyFrom(fields["arguments"].struct_value)
    return answer
