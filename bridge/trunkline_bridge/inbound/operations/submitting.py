"""Messages as they are submitted to the mesh, and how one is known that came before."""

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import TaskStream
from trunkline.errors import MessageKeyReusedError
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2
from trunkline_bridge.inbound.caller import Caller
from trunkline_bridge.inbound.cards import RESUME_EXTENSION


def submission_of(
    caller: Caller, request: a2a_pb2.SendMessageRequest
) -> message_service_pb2.Submission:
    """Return what the mesh is told beside a message: whose it is, and how to take it."""
    submission = message_service_pb2.Submission(
        account=caller.account,
        caller=caller.name,
        # Without the extension, a plain request of somebody unknown is always a new one.
        idempotent=caller.is_authenticated or RESUME_EXTENSION in caller.extensions,
        accepted_output_modes=request.configuration.accepted_output_modes,
    )
    if request.HasField("metadata"):
        submission.metadata.CopyFrom(request.metadata)
    if caller.deadline is not None:
        submission.deadline.FromDatetime(caller.deadline)
    return submission


def made_before(stream: TaskStream, submission: message_service_pb2.Submission) -> str:
    """Return the task that a submission for a new one made when it came first; empty: none."""
    if not submission.task_id or stream.snapshot is None:
        return ""
    task_id = stream.snapshot.task.id
    return "" if task_id == submission.task_id else task_id


def was_given(
    caller: Caller, task: snapshot_pb2.TaskSnapshot | None, message: message_pb2.Message
) -> bool:
    """Whether a message that names its task was given to it before.

    That is asked only with the extension: without it, a message is a new one whatever its id.

    Raises:
        MessageKeyReusedError: it was another one, by the same id.
    """
    if task is None or RESUME_EXTENSION not in caller.extensions:
        return False
    for known in task.task.history:
        if known.message_id == message.message_id and known.role == message.role:
            # As it was sent: its task has filled the ids in.
            sent = message_pb2.Message()
            sent.CopyFrom(known)
            sent.task_id, sent.context_id = message.task_id, message.context_id
            if sent != message:
                raise MessageKeyReusedError(message.message_id)
            return True
    return False
