"""Creates tasks: the checks of a submission, the idempotency key and the created event.

Also finds the journal's rows of tasks.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from trunkline import telemetry
from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import (
    ContentTypeNotSupportedError,
    InvalidArgumentError,
    TaskNotFoundError,
)
from trunkline.journal.events import new_context_id
from trunkline.journal.fold import set_create_time
from trunkline.journal.journal import CreateResult, Journal, TaskRow
from trunkline.journal.store import WebhookRow
from trunkline.tasks.approvals import is_approval_answer
from trunkline.tasks.content import is_tool_answer
from trunkline.users import current_actor, current_user, stored_statement
from trunkline.v1 import (
    agent_card_pb2,
    envelope_pb2,
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
)


def find_row(journal: Journal, task_id: str) -> TaskRow | None:
    """Return the row of a task, or None if the journal does not have it."""
    try:
        return journal.row(task_id)
    except TaskNotFoundError:
        return None


def get_account_row(journal: Journal, task_id: str, account: str) -> TaskRow:
    """Return the row of a task of the account; tasks of other accounts are reported as missing.

    Raises:
        TaskNotFoundError: the account has no such task.
    """
    row = find_row(journal, task_id)
    if row is None or row.account != (account or ANONYMOUS_ACCOUNT):
        raise TaskNotFoundError(task_id)
    return row


def build_task_created(
    agent: str,
    task_id: str,
    message: message_pb2.Message,
    submission: message_service_pb2.Submission,
    *,
    timeout_s: float | None = None,
    envelope: envelope_pb2.Envelope | None = None,
) -> event_pb2.TaskCreated:
    """Return the created event. Sets the message's task, and its context if it has none.

    The deadline is the earlier of the caller's and `timeout_s` from now. `envelope` is the message
    between agents that the task delivers, without its payload.
    """
    context_id = message.context_id or new_context_id()
    user = current_user.get()
    created = event_pb2.TaskCreated(
        context_id=context_id,
        agent=agent,
        account=submission.account or ANONYMOUS_ACCOUNT,
        # What a statement proves comes before what the request says.
        caller=user.name if user is not None and user.statement else submission.caller,
        message=message,
        accepted_output_modes=submission.accepted_output_modes,
        priority=submission.priority,
        traceparent=telemetry.current_traceparent(),
        user_statement=stored_statement(),
        actor=current_actor.get(),
    )
    created.message.task_id = task_id
    created.message.context_id = context_id
    # Presence matters: a task without a deadline has no limit, one without a parent is a root.
    for name in ("deadline", "parent", "metadata"):
        if submission.HasField(name):
            getattr(created, name).CopyFrom(getattr(submission, name))
    if envelope is not None:
        created.envelope.CopyFrom(envelope)
    if timeout_s is not None:
        latest = datetime.now(UTC) + timedelta(seconds=timeout_s)
        if not created.HasField("deadline") or latest < created.deadline.ToDatetime(tzinfo=UTC):
            created.deadline.FromDatetime(latest)
    return created


def idempotency_key(
    agent: str, message: message_pb2.Message, submission: message_service_pb2.Submission
) -> tuple[str, str]:
    """Return the key of a submission and a hash of the message, or two empty strings.

    The key consists of the account, the caller, the agent and the message id. Only idempotent
    submissions have one: in A2A, a plain anonymous message always creates a task.
    """
    if not submission.idempotent:
        return "", ""
    account = submission.account or ANONYMOUS_ACCOUNT
    key = "\n".join((account, submission.caller, agent, message.message_id))
    content = message.SerializeToString(deterministic=True)
    return key, hashlib.sha256(content).hexdigest()


# The code starts after this time, even if the caller does not read its response.
_START_TIMEOUT_S: Final = 1.0


class StartGate:
    """Delays an agent's code until the caller has the response, by a second at most.

    Otherwise code that blocks the event loop would delay the response.
    """

    __slots__ = ("_opened",)

    def __init__(self) -> None:
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        """Let the code run. Repeating this is harmless."""
        if not self._opened.done():
            self._opened.set_result(None)

    async def wait(self) -> bool:
        """Wait until the gate is open or the time limit has passed; return True."""
        timer = asyncio.get_running_loop().call_later(_START_TIMEOUT_S, self.open)
        try:
            await self._opened
        finally:
            timer.cancel()
        return True


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The task and turn that accepted a message."""

    task_id: str
    turn: int
    after: int
    """The sequence of the last event before the turn's output."""
    is_new: bool
    """True if the submission created the task."""
    snapshot: snapshot_pb2.TaskSnapshot | None = field(default=None, compare=False, repr=False)
    """The task at `after`, if the submission created it. Shared: it must not be changed."""
    gate: StartGate | None = field(default=None, compare=False, repr=False)
    """Delays the agent's code; None: the code runs already."""
    answers: Sequence[event_pb2.ApprovalAnswered] = ()
    """The approvals that the message answered."""

    def start(self) -> None:
        """Let the agent's code run. Repeating this is harmless."""
        if self.gate is not None:
            self.gate.open()


@dataclass(frozen=True, slots=True)
class NewTask:
    """The data of a task to be created, and the snapshot after that."""

    task_id: str
    created: event_pb2.TaskCreated
    snapshot: snapshot_pb2.TaskSnapshot
    """The task after `created`. Its times are set when the write has ended."""
    key: tuple[str, str]
    """The idempotency key and the content hash; see `idempotency_key`."""
    webhook: WebhookRow | None = None
    """The webhook that is created in the same write."""


class TaskCreation:
    """The write of a task's created event, which any number of callers may wait for.

    `on_created` runs in the loop iteration in which the write ends, so no coroutine runs between
    them.
    """

    def __init__(
        self,
        journal: Journal,
        new_task: NewTask,
        on_created: Callable[[bool], None],
        *,
        gate: StartGate | None = None,
    ) -> None:
        """`on_created` is called once, with True if the write created a task.

        `gate` delays the code that `on_created` starts.
        """
        self._journal = journal
        self._new_task = new_task
        self._on_created = on_created
        self._gate = gate
        self.future: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()

    def check_account(self, account: str) -> None:
        """Raise TaskNotFoundError if the task is another account's."""
        if self._new_task.created.account != account:
            raise TaskNotFoundError(self._new_task.task_id)

    def begin(self) -> None:
        """Start the write. If a task with the same key exists, that task is the result."""
        new_task = self._new_task
        key, content_hash = new_task.key
        write = self._journal.create(
            new_task.task_id,
            event_pb2.Event(created=new_task.created),
            key=key,
            content_hash=content_hash,
            webhook=new_task.webhook,
        )
        write.add_done_callback(self._on_journaled)

    async def wait(self) -> SubmitResult:
        """Wait until the task exists; canceling one wait does not affect the others."""
        return await asyncio.shield(self.future)

    def _on_journaled(self, done: asyncio.Future[CreateResult]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            self._on_created(False)
            self.future.set_exception(error)
            self.future.exception()  # Marks it as retrieved: the caller may be gone.
            return
        result = done.result()
        self._on_created(result.is_new)
        if not result.is_new:
            head = self._journal.head(result.task_id)
            self.future.set_result(SubmitResult(result.task_id, 1, head, is_new=False))
            return
        snapshot = self._new_task.snapshot
        if not snapshot.create_time.seconds:
            set_create_time(snapshot, result.time_ns)
        # The created event has sequence 1.
        self.future.set_result(
            SubmitResult(result.task_id, 1, 1, is_new=True, snapshot=snapshot, gate=self._gate)
        )


_ALIAS_LIMIT_BYTES: Final = 1024


def check_alias(alias: str, task_id: str) -> None:
    """Check an alias and the id of its task.

    Raises:
        InvalidArgumentError: one is empty, or the alias is too long.
    """
    if not alias:
        raise InvalidArgumentError("alias", "is missing")
    if len(alias.encode()) > _ALIAS_LIMIT_BYTES:
        raise InvalidArgumentError("alias", f"is longer than {_ALIAS_LIMIT_BYTES} bytes")
    if not task_id:
        raise InvalidArgumentError("task_id", "is missing")


def check_message(card: agent_card_pb2.AgentCard, message: message_pb2.Message) -> None:
    """Check that the agent can accept a message.

    Raises:
        InvalidArgumentError: the id, the role or the parts are missing.
        ContentTypeNotSupportedError: a part's media type isn't among the agent's input modes.
            Answers to approvals and to questions of tools are exempt.
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
        is_answer = is_approval_answer(part) or is_tool_answer(part)
        if part.media_type and not is_answer and not _accepts(card, part.media_type):
            modes = ", ".join(card.default_input_modes)
            raise ContentTypeNotSupportedError(part.media_type, modes)


def _accepts(card: agent_card_pb2.AgentCard, media_type: str) -> bool:
    """Return True if the card lists the type or a range of it (RFC 9110), or has no list."""
    modes = {mode.lower() for mode in card.default_input_modes}
    bare_type = media_type.partition(";")[0].strip().lower()
    return not modes or bool({bare_type, bare_type.partition("/")[0] + "/*", "*/*"} & modes)
