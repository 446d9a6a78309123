"""Makes a task exist: the event it begins with, the key it is known by, and its creation."""

import asyncio
import hashlib
import uuid
from dataclasses import dataclass

from trunkline import telemetry
from trunkline.journal.journal import Journal
from trunkline.v1 import event_pb2, message_pb2, message_service_pb2

# Whose tasks anonymous callers' are.
ANONYMOUS = "anonymous"


def task_created(
    agent: str,
    task_id: str,
    message: message_pb2.Message,
    submission: message_service_pb2.Submission,
) -> event_pb2.TaskCreated:
    """Return the created event, with the ids of the message and a new context filled in."""
    context_id = message.context_id or str(uuid.uuid4())
    created = event_pb2.TaskCreated(
        context_id=context_id,
        agent=agent,
        account=submission.account or ANONYMOUS,
        caller=submission.caller,
        message=message,
        accepted_output_modes=submission.accepted_output_modes,
        priority=submission.priority,
        traceparent=telemetry.traceparent(),
    )
    created.message.task_id = task_id
    created.message.context_id = context_id
    # Presence counts for these: an unset deadline is none, an unset parent makes a root.
    for field in ("deadline", "parent", "metadata"):
        if submission.HasField(field):
            getattr(created, field).CopyFrom(getattr(submission, field))
    return created


def submission_key(
    agent: str, message: message_pb2.Message, submission: message_service_pb2.Submission
) -> tuple[str, str]:
    """Return the key (caller, agent, message id) and a hash of the content, or two empty texts.

    Only idempotent submissions have a key: at A2A's edge a plain anonymous one is always new.
    """
    if not submission.idempotent:
        return "", ""
    account = submission.account or ANONYMOUS
    key = "\n".join((account, submission.caller, agent, message.message_id))
    content = message.SerializeToString(deterministic=True)
    return key, hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message was taken: by which task, in which turn, and where its events go on from."""

    task_id: str
    turn: int
    after: int
    is_new: bool


class Creation:
    """Journals a task's created event when that is due; whoever submitted waits for it."""

    def __init__(
        self, journal: Journal, task_id: str, created: event_pb2.TaskCreated, key: tuple[str, str]
    ) -> None:
        self._journal = journal
        self._task_id = task_id
        self._created = created
        self._key = key
        self.accepted: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()

    async def create(self) -> Accepted:
        """Make the task, or find the one the same key made before."""
        key, content_hash = self._key
        event = event_pb2.Event(created=self._created)
        made = await self._journal.create(self._task_id, event, key=key, content_hash=content_hash)
        after = 1 if made.is_new else self._journal.head(made.task_id)
        accepted = Accepted(made.task_id, 1, after, made.is_new)
        self.accepted.set_result(accepted)
        return accepted
