"""Answers to approvals: in messages of A2A, and by a call of their own on the page.

The statement of the user names the approved calls, so the bridge reads answers as the host does.
"""

from dataclasses import replace

from trunkline.core.users import current_user
from trunkline.mesh.client import Directory
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, task_service_pb2


def note_approved_calls(message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot) -> None:
    """Name the calls that a message approves in the statement of its user.

    The tool adapter lets agents that joined the mesh make only these calls.
    """
    # Loads the host's code, which a bridge needs for nothing else.
    from trunkline.tasks.approvals import digest_approved_calls

    user = current_user.get()
    if user is not None:
        current_user.set(replace(user, approved=digest_approved_calls(message, task)))


async def answer_approval(
    directory: Directory,
    request: task_service_pb2.AnswerApprovalRequest,
    task: snapshot_pb2.TaskSnapshot,
) -> snapshot_pb2.ApprovalInfo:
    """Answer an approval that a task shows, for the current user; return its new state.

    Raises:
        ApprovalNotFoundError: the task does not request this approval.
        ApprovalAnsweredError: it was answered differently before.
        TaskEndedError: the task no longer waits for it.
    """
    # Loads the host's code, which a bridge needs for nothing else.
    from trunkline.tasks.approvals import digest_answer

    answer = event_pb2.ApprovalAnswered(decision=request.decision, arguments=request.arguments)
    user = current_user.get()
    for approval in task.approvals:
        if user is not None and approval.requested.approval_id == request.approval_id:
            # The tool adapter lets agents that joined the mesh make only the call that the user's
            # statement names.
            digest = digest_answer(approval.requested, answer)
            current_user.set(replace(user, approved=frozenset({digest} - {""})))
    client = directory.client_for_task(request.task_id)
    return (await client.tasks.AnswerApproval(request)).approval
