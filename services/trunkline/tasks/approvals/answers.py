"""Which approvals of a task a message answers."""

from trunkline.errors import ApprovalNotFoundError
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
        InvalidArgumentError: data that answers is wrong in itself.
        ApprovalNotFoundError: data answers an approval that the task doesn't ask for.
        ApprovalAnsweredError: it was answered otherwise before.
    """
    if not task.approvals:
        return []
    answers = answers_in_data(message)
    if not answers:
        text = "\n".join(part.text for part in message.parts if part.HasField("text"))
        answers = answers_in_text(text, task)
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
