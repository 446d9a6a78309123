"""Submissions of messages: their checks, the tasks that they create, and their results.

A submission goes forward: its message is checked, the turn is admitted, it gets its place among the
turns of its conversation if the agent has conversations, the created event is written to the
journal, and the execution of the task runs the code; see `trunkline.tasks.execution`.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.storable_texts import TEXT_LIMIT_BYTES
from trunkline.core.users import current_actor, current_user, stored_statement
from trunkline.errors import (
    ContentTypeNotSupportedError,
    InvalidArgumentError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.journal.events import new_context_id
from trunkline.journal.fold import initial_snapshot, set_create_time
from trunkline.journal.journal import CreateResult, TaskRow
from trunkline.journal.store import WebhookRow
from trunkline.observe import telemetry
from trunkline.tasks.agent import Agent
from trunkline.tasks.approvals import answers_since, is_approval_answer
from trunkline.tasks.content import is_tool_answer
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.execution import (
    ExecutionState,
    StartGate,
    TaskExecution,
    TaskExecutions,
)
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, state_name
from trunkline.tasks.outbox.webhook import from_row, to_row
from trunkline.tasks.task_rows import get_account_row
from trunkline.tasks.task_tree import admit_task
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import (
    agent_card_pb2,
    envelope_pb2,
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
)


def build_task_created(
    agent: str,
    task_id: str,
    message: message_pb2.Message,
    submission: message_service_pb2.Submission,
    *,
    timeout_s: float | None = None,
    envelope: envelope_pb2.Envelope | None = None,
) -> event_pb2.TaskCreated:
    """Return the created event. Sets the task of the message, and a new context by default.

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
    # Presence matters: a task without a deadline has no limit, a task without a parent is a root.
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

    The key consists of the account, the caller, the agent and the message id, or is their hash if
    they are too long for a store. Only idempotent submissions have a key: in A2A, a plain anonymous
    message always creates a task.
    """
    if not submission.idempotent:
        return "", ""
    account = submission.account or ANONYMOUS_ACCOUNT
    key = "\n".join((account, submission.caller, agent, message.message_id))
    if len(key.encode()) > TEXT_LIMIT_BYTES:
        key = hashlib.sha256(key.encode()).hexdigest()
    content = message.SerializeToString(deterministic=True)
    return key, hashlib.sha256(content).hexdigest()


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
    """Delays the code of the agent, unless the code runs already."""
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
    is_first_attempt: bool
    """No earlier call had the task's id."""
    webhook: WebhookRow | None = None
    """The webhook that is created in the same write."""


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


# The turn of a delivery is in the journal after this time.
_CREATE_AFTER_S: Final = 0.05


class SubmitHandler:
    """Handles the messages for the agents of a journal; see `TaskHost.submit` for the contract.

    The work on a message runs in the execution of its task, never in the submitting call, which may
    be canceled at any moment.
    """

    def __init__(self, executions: TaskExecutions, deadlines: DeadlineTimer) -> None:
        resources = executions.resources
        self._resources = resources
        self._journal = resources.journal
        self._settings = resources.host.settings
        self._admissions = resources.host.admissions
        self._push_configs = resources.host.push_configs
        self._budgets = resources.host.budgets
        self._files = resources.files
        self._executions = executions
        self._deadlines = deadlines

    async def create_task(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult | message_pb2.Message:
        """Create a task for the message, or return the direct reply of the agent.

        The code of the agent runs once the caller has the response.
        """
        admitted = await self._admit(agent, message, submission)
        if isinstance(admitted, SubmitResult):
            return admitted
        execution, new_task = admitted
        if new_task is None:
            return await self._wait_for_outcome(execution)
        if agent.direct_replies:
            return await self._run_direct_replier(execution, new_task)
        execution.gate = gate = StartGate()
        if agent.has_conversations:
            create = partial(self._create, execution, new_task)
            turn = execution.turn = self._build_turn(new_task, create=create)
            self._executions.run(execution, partial(self._create_in_order, execution, turn))
        else:
            execution.turn = self._build_turn(new_task)
            self._create(execution, new_task)
        try:
            return await self._wait_for_outcome(execution)
        except BaseException:
            # No response is sent, so the code need not wait for it.
            gate.open()
            raise

    async def deliver(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        envelope: envelope_pb2.Envelope,
    ) -> TaskExecution | SubmitResult:
        """Run a turn that delivers a message between agents; return its execution.

        The task is created by the first event of its turn, in the same commit, or once the turn
        takes long. A delivery whose task exists is not run again: the result is the execution of
        the turn that runs, or the task.
        """
        admitted = await self._admit(agent, message, submission, envelope)
        if isinstance(admitted, SubmitResult):
            return admitted
        execution, new_task = admitted
        if new_task is not None:
            self._run_delivery(agent, execution, new_task)
        return execution

    async def continue_task(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult:
        """Open the next turn of the task of the message, and run it."""
        if self._budgets is not None:
            account = submission.account or ANONYMOUS_ACCOUNT
            await self._budgets.check(account, submission.caller)
        row = await self._get_interrupted_row(agent, message, submission.account)
        is_child = submission.HasField("parent")
        self._admissions.check(agent.card.name, row.account, is_child=is_child)
        # No await since the check, so that only one of two concurrent messages opens the turn.
        execution = self._executions.reserve(row.task_id)
        self._executions.admit(execution, agent, row.account)
        opened: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()
        runner = self._executions.run(
            execution, partial(self._open_turn, agent, execution, row, message, submission, opened)
        )
        await _wait_for_first([opened, runner])
        if opened.done():
            return opened.result()
        if execution.termination is None:
            raise PeerUnavailableError("this host", "it is shutting down; send the message again")
        raise TaskEndedError(row.task_id, "being ended")

    async def _admit(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        envelope: envelope_pb2.Envelope | None = None,
    ) -> SubmitResult | tuple[TaskExecution, NewTask | None]:
        """Return an execution for a new task, and the task to create.

        If an earlier call creates the task, the second value is None. A task that exists is the
        result.
        """
        task_id = submission.task_id or self._journal.new_task_id()
        account = submission.account or ANONYMOUS_ACCOUNT
        is_root = not submission.HasField("parent")
        existing = self._journal.find_in_memory(task_id)
        is_first = submission.is_first_attempt or not submission.task_id
        if existing is None and not is_first:
            existing = await self._journal.find(task_id)
        if existing is None:
            if self._budgets is not None:
                await self._budgets.check(account, submission.caller)
            stored = await self._files.store_message(task_id, message)
            timeout_s = await self._find_timeout_s(agent, stored, is_root=is_root)
            # The same message may have created the task meanwhile. No await may come between this
            # look-up and the reservation.
            existing = self._journal.find_in_memory(task_id)
        if existing is not None:
            return _attach_to(existing, account)
        if submission.task_id:
            earlier = self._executions.find(task_id)
            if earlier is not None and earlier.created is not None:
                if earlier.turn is None or earlier.turn.account != account:
                    raise TaskNotFoundError(task_id)
                return earlier, None
        name = agent.card.name
        tree = admit_task(name, submission, self._settings.tree)
        self._admissions.check(name, account, is_child=not is_root)
        created = build_task_created(
            name, task_id, stored, submission, timeout_s=timeout_s, envelope=envelope
        )
        if tree is not None:
            created.tree.CopyFrom(tree)
        snapshot = initial_snapshot(task_id, created, epoch=self._journal.epoch)
        key = idempotency_key(name, message, submission)
        webhook = self._build_webhook(task_id, created, submission)
        execution = self._executions.reserve(task_id)
        self._executions.admit(execution, agent, account)
        execution.created = asyncio.get_running_loop().create_future()
        if created.HasField("deadline"):
            self._deadlines.add(task_id, created.deadline.ToDatetime(tzinfo=UTC))
        return execution, NewTask(task_id, created, snapshot, key, is_first, webhook)

    async def _create_in_order(self, execution: TaskExecution, turn: TurnRuntime) -> bool:
        """Create a task after its turn has a ticket; return False if no task was created.

        The order of the two is what counts: whoever finds the task, also by its key, finds a turn
        that no later message of the conversation can overtake.
        """
        created = execution.created
        assert created is not None  # noqa: S101  set at the admission of the task
        try:
            await turn.take_ticket()
            turn.create()
            return (await asyncio.shield(created)).is_new
        except TrunklineError as error:
            if not created.done():
                created.set_exception(error)
            created.exception()  # Marks it as retrieved: the caller may be gone.
            return False

    def _create(self, execution: TaskExecution, new_task: NewTask) -> None:
        """Begin the write of a created event, whose result `execution.created` gets."""
        key, content_hash = new_task.key
        write = self._journal.create(
            new_task.task_id,
            event_pb2.Event(created=new_task.created),
            key=key,
            content_hash=content_hash,
            webhook=new_task.webhook,
            is_first_attempt=new_task.is_first_attempt,
        )
        write.add_done_callback(partial(self._on_written, execution, new_task))

    def _on_written(
        self, execution: TaskExecution, new_task: NewTask, write: asyncio.Future[CreateResult]
    ) -> None:
        """Start the code of a new task, or stop code that runs for no new task.

        This is a callback, so that no coroutine runs between the write and the start. If a task
        with the same key exists, that task is the result.
        """
        error = asyncio.CancelledError() if write.cancelled() else write.exception()
        is_new = error is None and write.result().is_new
        if is_new and new_task.webhook is not None:
            self._push_configs.outbox.activate(self._journal, from_row(new_task.webhook))
        if execution.state is ExecutionState.RUNNING:
            if not is_new:
                # No later write of the code can succeed.
                execution.stop()
        elif is_new and execution.state is ExecutionState.RESERVED:
            self._executions.run(execution)
        elif execution.runner is None and execution.termination is None:
            self._executions.release(execution)
        created = execution.created
        assert created is not None  # noqa: S101  set at the admission of the task
        if error is not None:
            created.set_exception(error)
            created.exception()  # Marks it as retrieved: the caller may be gone.
            return
        result = write.result()
        if not result.is_new:
            created.set_result(SubmitResult(result.task_id, 1, result.head, is_new=False))
            return
        if not new_task.snapshot.create_time.seconds:
            set_create_time(new_task.snapshot, result.time_ns)
        # The created event has sequence 1.
        created.set_result(
            SubmitResult(
                result.task_id,
                1,
                1,
                is_new=True,
                snapshot=new_task.snapshot,
                gate=execution.gate,
            )
        )

    async def _run_direct_replier(
        self, execution: TaskExecution, new_task: NewTask
    ) -> SubmitResult | message_pb2.Message:
        """Run an agent that may reply directly; its first event creates the task."""

        async def create() -> None:
            self._create(execution, new_task)
            with contextlib.suppress(TrunklineError):
                if (await _get_created(execution)).is_new:
                    return
            # The write failed, or the task exists from an earlier submission. The code is canceled
            # while it waits here.
            await asyncio.Event().wait()

        execution.turn = self._build_turn(new_task, create=create, may_reply=True)
        self._executions.run(execution)
        return await self._wait_for_outcome(execution)

    def _run_delivery(self, agent: Agent, execution: TaskExecution, new_task: NewTask) -> None:
        """Run the turn of a delivery; its first event creates the task, in the same commit."""
        set_create_time(new_task.snapshot, time.time_ns())
        create = partial(self._create, execution, new_task)
        turn = execution.turn = self._build_turn(
            new_task, create=create, may_reply=agent.direct_replies
        )
        if not agent.direct_replies:
            # From then on, the task can be listed and canceled.
            timer = asyncio.get_running_loop().call_later(_CREATE_AFTER_S, turn.create)
            execution.on_released.append(timer.cancel)
            if not self._journal.has_tasks:
                # A journal without tasks may be removed after the death of its host. Then a
                # repeated delivery could not find out whether this task had begun.
                turn.create()
        self._executions.run(execution)

    async def _wait_for_outcome(
        self, execution: TaskExecution
    ) -> SubmitResult | message_pb2.Message:
        """Wait until the task exists, or the agent has replied without a task."""
        futures: list[asyncio.Future[Any]] = []
        if execution.created is not None:
            futures.append(execution.created)
        if execution.runner is not None:
            futures.append(execution.runner)
        await _wait_for_first(futures)
        if execution.created is not None and execution.created.done():
            return execution.created.result()
        if execution.turn is not None and execution.turn.reply_message is not None:
            return execution.turn.reply_message
        raise build_creation_error(execution)

    async def _open_turn(
        self,
        agent: Agent,
        execution: TaskExecution,
        row: TaskRow,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        opened: asyncio.Future[SubmitResult],
    ) -> bool:
        """Journal the start of the next turn, and set the result of `opened`."""
        try:
            await self._register_webhook(row, submission)
            waiting = execution.turn = await self._executions.load_turn(row.task_id)
            if agent.has_conversations:
                await waiting.take_ticket(is_next=True)
            await waiting.open_turn(await self._files.store_message(row.task_id, message))
            turn = execution.turn = await self._executions.load_turn(row.task_id)
        except TrunklineError as error:
            opened.set_exception(error)
            opened.exception()  # Marks it as retrieved: the caller may be gone.
            return False
        snapshot = turn.snapshot
        answers = answers_since(snapshot.approvals, since=snapshot.turn)
        opened.set_result(
            SubmitResult(
                row.task_id, snapshot.turn, snapshot.sequence, is_new=False, answers=answers
            )
        )
        return True

    def _build_turn(
        self,
        new_task: NewTask,
        *,
        create: Callable[[], Awaitable[None] | None] | None = None,
        may_reply: bool = False,
    ) -> TurnRuntime:
        return TurnRuntime(
            self._resources,
            new_task.snapshot,
            new_task.created.message,
            create=create,
            may_reply=may_reply,
        )

    async def _find_timeout_s(
        self, agent: Agent, message: message_pb2.Message, *, is_root: bool
    ) -> float | None:
        """Return the longest life of a new task, if it is limited."""
        own_s = self._settings.agent_timeout_s(agent.card.name)
        if own_s is None:
            own_s = await agent.find_time_limit_s(message)
        tree_s = self._settings.tree.timeout_s if is_root else None
        return min((limit for limit in (own_s, tree_s) if limit is not None), default=None)

    def _build_webhook(
        self,
        task_id: str,
        created: event_pb2.TaskCreated,
        submission: message_service_pb2.Submission,
    ) -> WebhookRow | None:
        """Return the webhook to create with a task, if the submission has a webhook."""
        if not submission.HasField("push_notification_config"):
            return None
        config, version = submission.push_notification_config, submission.push_notification_version
        return to_row(self._push_configs.build_for_new_task(task_id, created, config, version))

    async def _register_webhook(
        self, row: TaskRow, submission: message_service_pb2.Submission
    ) -> None:
        """Register the webhook of the next message of a task, if the submission has a webhook."""
        if submission.HasField("push_notification_config"):
            config = submission.push_notification_config
            await self._push_configs.put_of_message(
                self._journal, row, config, submission.push_notification_version
            )

    async def _get_interrupted_row(
        self, agent: Agent, message: message_pb2.Message, account: str
    ) -> TaskRow:
        """Return the row of the message's task.

        Raises:
            TaskNotFoundError: the account has no such task of the agent.
            InvalidArgumentError: the context is not the task's.
            TaskEndedError: the task has ended.
            UnsupportedOperationError: the task does not wait for a message.
        """
        task_id = message.task_id
        if (await get_account_row(self._journal, task_id, account)).agent != agent.card.name:
            raise TaskNotFoundError(task_id)
        execution = self._executions.find(task_id)
        if execution is not None and execution.turn is not None and execution.turn.is_over:
            # The turn or the task is ending, which takes no longer than the grace period.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.cancel_grace_s):
                    await execution.released.wait()
        row = await get_account_row(self._journal, task_id, account)
        if message.context_id and message.context_id != row.context_id:
            raise InvalidArgumentError("message.contextId", "does not match the task's context")
        if row.state in TERMINAL:
            raise TaskEndedError(task_id, state_name(row.state))
        if row.state not in INTERRUPTED or self._executions.find(task_id) is not None:
            raise UnsupportedOperationError(
                "a message to a task that works", "wait until it asks, or start another task"
            )
        return row


def _attach_to(row: TaskRow, account: str) -> SubmitResult:
    """Return the result of a submission whose task exists.

    Raises:
        TaskNotFoundError: the task belongs to another account.
    """
    if row.account != account:
        raise TaskNotFoundError(row.task_id)
    return SubmitResult(row.task_id, 1, row.head, is_new=False)


async def _get_created(execution: TaskExecution) -> SubmitResult:
    """Wait until the task exists; canceling one wait does not affect the others."""
    assert execution.created is not None  # noqa: S101  only for executions that create tasks
    return await asyncio.shield(execution.created)


def build_creation_error(execution: TaskExecution) -> TrunklineError:
    """Return the error for a turn that ended without a task and without a direct reply."""
    created, turn = execution.created, execution.turn
    if created is not None and created.done():
        error = created.exception()
        if isinstance(error, TrunklineError):
            return error
    deadline = None if turn is None else turn.deadline
    if deadline is not None and deadline <= datetime.now(UTC):
        return PeerTimeoutError(f"agent of {execution.task_id!r}", DEADLINE_PASSED)
    return PeerUnavailableError("this host", "the task could not be journaled; try again")


async def _wait_for_first(futures: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until one of the futures is done, at a third of the cost of `asyncio.wait`."""
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_done: object) -> None:
        if not first.done():
            first.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    try:
        await first
    finally:
        for future in futures:
            future.remove_done_callback(wake)
