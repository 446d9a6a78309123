"""Makes a task exist: the event it begins with, the key it is known by, and its creation."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trunkline import telemetry
from trunkline.errors import ContentTypeNotSupportedError, InvalidArgumentError
from trunkline.identity import ANONYMOUS_ACCOUNT
from trunkline.journal.events import new_context_id
from trunkline.journal.journal import CreateResult, Journal
from trunkline.journal.store import WebhookRow
from trunkline.tasks.approvals import is_approval_answer
from trunkline.v1 import agent_card_pb2, event_pb2, message_pb2, message_service_pb2


def build_task_created(
    agent: str,
    task_id: str,
    message: message_pb2.Message,
    submission: message_service_pb2.Submission,
    *,
    timeout_s: float | None = None,
) -> event_pb2.TaskCreated:
    """Return the created event, with the ids of the message and a new context filled in.

    Without an earlier deadline of the caller's, the task has one in `timeout_s`.
    """
    context_id = message.context_id or new_context_id()
    created = event_pb2.TaskCreated(
        context_id=context_id,
        agent=agent,
        account=submission.account or ANONYMOUS_ACCOUNT,
        caller=submission.caller,
        message=message,
        accepted_output_modes=submission.accepted_output_modes,
        priority=submission.priority,
        traceparent=telemetry.current_traceparent(),
    )
    created.message.task_id = task_id
    created.message.context_id = context_id
    # Presence counts for these: an unset deadline is none, an unset parent makes a root.
    for field in ("deadline", "parent", "metadata"):
        if submission.HasField(field):
            getattr(created, field).CopyFrom(getattr(submission, field))
    if timeout_s is not None:
        latest = datetime.now(UTC) + timedelta(seconds=timeout_s)
        if not created.HasField("deadline") or latest < created.deadline.ToDatetime(tzinfo=UTC):
            created.deadline.FromDatetime(latest)
    return created


def idempotency_key(
    agent: str, message: message_pb2.Message, submission: message_service_pb2.Submission
) -> tuple[str, str]:
    """Return the key (caller, agent, message id) and a hash of the content, or two empty texts.

    Only idempotent submissions have a key: at A2A's edge a plain anonymous one is always new.
    """
    if not submission.idempotent:
        return "", ""
    account = submission.account or ANONYMOUS_ACCOUNT
    key = "\n".join((account, submission.caller, agent, message.message_id))
    content = message.SerializeToString(deterministic=True)
    return key, hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """A message was taken: by which task, in which turn, and where its events go on from."""

    task_id: str
    turn: int
    after: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class NewTask:
    """What a task is made of."""

    task_id: str
    created: event_pb2.TaskCreated
    key: tuple[str, str]
    """What it is known by, and the hash of its content; see `submission_key`."""
    webhook: WebhookRow | None = None
    """It is kept with the task."""


class TaskCreation:
    """Journals a task's created event when that is due; whoever submitted waits for it.

    What follows is done in the very moment that the task exists, by `on_made`: nobody can come
    or leave in between.
    """

    def __init__(self, journal: Journal, new: NewTask, on_made: Callable[[bool], None]) -> None:
        """`on_made` is told whether there is a new task."""
        self._journal = journal
        self._new = new
        self._on_made = on_made
        self.accepted: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Make the task, or find the one the same key made before."""
        new = self._new
        key, content_hash = new.key
        made = self._journal.create(
            new.task_id,
            event_pb2.Event(created=new.created),
            key=key,
            content_hash=content_hash,
            webhook=new.webhook,
        )
        made.add_done_callback(self._made)

    async def wait(self) -> SubmitResult:
        """Wait until the task is made; leaving changes nothing for others that wait."""
        return await asyncio.shield(self.accepted)

    def _made(self, done: asyncio.Future[CreateResult]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            self._on_made(False)
            self.accepted.set_exception(error)
            self.accepted.exception()  # Whoever waited may have left: then nobody looks at it.
            return
        made = done.result()
        self._on_made(made.is_new)
        # A new one has its created event, and nothing behind it that anyone has seen.
        after = 1 if made.is_new else self._journal.head(made.task_id)
        self.accepted.set_result(SubmitResult(made.task_id, 1, after, made.is_new))


_ALIAS_BYTES: Final = 1024


def check_alias(alias: str, task_id: str) -> None:
    """Refuse an id of a client's that can't stand for a task. InvalidArgumentError."""
    if not alias:
        raise InvalidArgumentError("alias", "is missing")
    if len(alias.encode()) > _ALIAS_BYTES:
        raise InvalidArgumentError("alias", f"is longer than {_ALIAS_BYTES} bytes")
    if not task_id:
        raise InvalidArgumentError("task_id", "is missing")


def check_message(card: agent_card_pb2.AgentCard, message: message_pb2.Message) -> None:
    """Refuse a message the agent can't take.

    Raises:
        InvalidArgumentError: an id, the role or the parts are missing.
        ContentTypeNotSupportedError: a part's media type isn't among the agent's input modes, and
            it is no answer to an approval.
    """
    if not message.message_id:
        raise InvalidArgumentError("message.messageId", "is missing")
    if message.role != message_pb2.ROLE_USER:
        raise InvalidArgumentError("message.role", "must be ROLE_USER")
    if not message.parts:
        raise InvalidArgumentError("message.parts", "must have at least one part")
    for index, part in enumerate(message.parts):
        if part.WhichOneof("content") is None:
            raise InvalidArgumentError(
                f"message.parts[{index}]", "has no content: give text, raw, url or data"
            )
        if part.media_type and not is_approval_answer(part) and not _accepts(card, part.media_type):
            modes = ", ".join(card.default_input_modes)
            raise ContentTypeNotSupportedError(part.media_type, modes)


def _accepts(card: agent_card_pb2.AgentCard, media_type: str) -> bool:
    """A card without input modes takes everything; `image/*` and `*/*` are ranges (RFC 9110)."""
    modes = {mode.lower() for mode in card.default_input_modes}
    plain = media_type.partition(";")[0].strip().lower()
    return not modes or bool({plain, plain.partition("/")[0] + "/*", "*/*"} & modes)
