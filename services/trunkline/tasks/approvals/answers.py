"""Which approvals of a task a message answers."""

from collections.abc import Sequence

from trunkline.errors import ApprovalNotFoundError, InvalidArgumentError
from trunkline.tasks.approvals.approval import check_same
from trunkline.tasks.approvals.data import answers_in_data
from trunkline.tasks.approvals.lines import answers_in_text
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2


def read_answers(
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
    answers, said = answers_in_data(message), answers_in_text(text, task)
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
            check_same(before, answer)
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
