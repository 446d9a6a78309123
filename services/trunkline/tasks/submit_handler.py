"""Handles submitted messages: creates tasks, opens turns, and returns direct replies."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.journal.fold import initial_snapshot, set_create_time
from trunkline.journal.journal import Journal, TaskRow
from trunkline.journal.store import WebhookRow
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent, TimedAgent
from trunkline.tasks.approvals import answers_since
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.files import JournalFiles
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, state_name
from trunkline.tasks.outbox import PushConfigs
from trunkline.tasks.outbox.webhook import from_row, to_row
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.submission import (
    NewTask,
    StartGate,
    SubmitResult,
    TaskCreation,
    build_task_created,
    find_row,
    get_account_row,
    idempotency_key,
)
from trunkline.tasks.task_tree import admit_task
from trunkline.tasks.turn_factory import TurnFactory
from trunkline.v1 import envelope_pb2, event_pb2, message_pb2, message_service_pb2

# A turn that delivers a message is in the journal after this time.
_CREATE_AFTER_S: Final = 0.05


class SubmitHandler:
    """Handles the messages for a journal's agents; see `TaskHost.submit` for the contract.

    The work on a message runs in the slot of its task, never in the submitting call, which may be
    canceled at any moment.
    """

    def __init__(  # noqa: PLR0913  one for each collaborator
        self,
        journal: Journal,
        settings: TaskSettings,
        *,
        slots: TaskSlots,
        turns: TurnFactory,
        admissions: AdmissionControl,
        deadlines: DeadlineTimer,
        push_configs: PushConfigs,
        files: JournalFiles,
        budgets: Budgets | None,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._slots = slots
        self._turns = turns
        self._admissions = admissions
        self._deadlines = deadlines
        self._push_configs = push_configs
        self._files = files
        self._budgets = budgets

    async def create_task(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult | message_pb2.Message:
        """Create a task for the message and run it, or return the agent's direct reply."""
        found = await self._admit(agent, message, submission)
        if isinstance(found, SubmitResult):
            return found
        slot, new_task = found
        if isinstance(new_task, TaskCreation):
            return await self._wait_for_outcome(slot, new_task)
        if agent.direct_replies:
            return await self._run_direct_replier(agent, slot, new_task)
        return await self._create_and_run(agent, slot, new_task)

    async def deliver(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        envelope: envelope_pb2.Envelope,
    ) -> TaskSlot | SubmitResult:
        """Run a turn that delivers a message between agents; return its slot.

        The task is created by the first event of its turn, in the same commit, or once the turn
        takes long. A delivery whose task exists is not run again: the result is the slot of the
        running turn, or the task.
        """
        found = await self._admit(agent, message, submission, envelope)
        if isinstance(found, SubmitResult):
            return found
        slot, new_task = found
        if isinstance(new_task, NewTask):
            self._run_delivery(agent, slot, new_task)
        return slot

    async def _admit(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        envelope: envelope_pb2.Envelope | None = None,
    ) -> SubmitResult | tuple[TaskSlot, NewTask | TaskCreation]:
        """Return a slot for a new task; the task, or its slot, if it exists or is being created."""
        task_id = submission.task_id or self._journal.new_task_id()
        if not task_id.startswith(f"{self._journal.id}-"):
            raise InvalidArgumentError("submission.task_id", "is not of this host's journal")
        account = submission.account or ANONYMOUS_ACCOUNT
        is_new = self._find_own_row(task_id, account) is None
        if self._budgets is not None and is_new:
            await self._budgets.check(account, submission.caller)
        # Comes first, because no await may separate the checks below from taking the slot.
        stored = await self._files.store_message(task_id, message)
        if submission.task_id:
            if (existing := self._find_own_row(task_id, account)) is not None:
                return SubmitResult(task_id, 1, existing.head, is_new=False)
            if (slot := self._slots.find(task_id)) is not None and slot.creation is not None:
                slot.creation.check_account(account)
                return slot, slot.creation
        name = agent.card.name
        tree = admit_task(name, submission, self._settings.tree)
        self._admissions.check(name, account, is_child=submission.HasField("parent"))
        is_root = not submission.HasField("parent")
        timeout_s = self._find_timeout_s(agent, stored, is_root=is_root)
        created = build_task_created(
            name, task_id, stored, submission, timeout_s=timeout_s, envelope=envelope
        )
        if tree is not None:
            created.tree.CopyFrom(tree)
        new_task = NewTask(
            task_id,
            created,
            initial_snapshot(
                task_id,
                created,
                epoch=self._journal.epoch,
            ),
            idempotency_key(name, message, submission),
            self._build_webhook(task_id, created, submission),
        )
        slot = self._slots.reserve(task_id)
        self._slots.admit(slot, agent, account)
        if created.HasField("deadline"):
            self._deadlines.add(task_id, created.deadline.ToDatetime(tzinfo=UTC))
        return slot, new_task

    def _find_own_row(self, task_id: str, account: str) -> TaskRow | None:
        """Return the row of a task, or None if there is none.

        Raises:
            TaskNotFoundError: the task is another account's.
        """
        if find_row(self._journal, task_id) is None:
            return None
        return get_account_row(self._journal, task_id, account)

    async def _create_and_run(
        self, agent: Agent, slot: TaskSlot, new_task: NewTask
    ) -> SubmitResult:
        """Create a task, and run its agent once the caller has the response."""
        gate = StartGate()

        def on_created(is_new: bool) -> None:  # noqa: FBT001
            self._on_created(new_task, is_new=is_new)
            if is_new and not slot.is_stopped:
                self._slots.start(agent, slot, gate.wait)
            elif slot.termination is None:
                self._slots.release(slot)

        slot.runtime = self._turns.build(new_task.snapshot, new_task.created.message)
        slot.creation = TaskCreation(self._journal, new_task, on_created, gate=gate)
        slot.creation.begin()
        try:
            return await slot.creation.wait()
        except BaseException:
            # No response is sent, so the code need not wait for it.
            gate.open()
            raise

    async def _run_direct_replier(
        self, agent: Agent, slot: TaskSlot, new_task: NewTask
    ) -> SubmitResult | message_pb2.Message:
        """Run an agent that may reply directly; its first event creates the task."""

        async def create() -> None:
            creation.begin()
            with contextlib.suppress(TrunklineError):
                if (await creation.wait()).is_new:
                    return
            # The write failed, or the task exists from an earlier submission. The turn is canceled
            # while it waits here.
            slot.stop()
            await asyncio.Event().wait()

        creation = TaskCreation(
            self._journal, new_task, lambda is_new: self._on_created(new_task, is_new=is_new)
        )
        slot.creation = creation
        slot.runtime = self._turns.build(
            new_task.snapshot, new_task.created.message, create=create, may_reply=True
        )
        self._slots.start(agent, slot)
        return await self._wait_for_outcome(slot, creation)

    def _run_delivery(self, agent: Agent, slot: TaskSlot, new_task: NewTask) -> None:
        """Run the turn of a delivery; its first event creates the task, in the same commit."""

        def on_created(is_new: bool) -> None:  # noqa: FBT001
            if not is_new:
                # The write failed, and no further one can succeed.
                slot.stop()

        set_create_time(new_task.snapshot, time.time_ns())
        creation = slot.creation = TaskCreation(self._journal, new_task, on_created)
        runtime = slot.runtime = self._turns.build(
            new_task.snapshot,
            new_task.created.message,
            create=creation.begin,
            may_reply=agent.direct_replies,
        )
        if not agent.direct_replies:
            # From then on, the task can be listed and canceled.
            timer = asyncio.get_running_loop().call_later(_CREATE_AFTER_S, runtime.create)
            slot.on_released.append(timer.cancel)
            if not self._journal.has_tasks:
                # A journal without tasks may be removed after its host's death. Then a repeated
                # delivery could not find out whether this task had begun.
                runtime.create()
        self._slots.start(agent, slot)

    async def _wait_for_outcome(
        self, slot: TaskSlot, creation: TaskCreation
    ) -> SubmitResult | message_pb2.Message:
        """Wait until the task exists, or the agent has replied without one."""
        futures: list[asyncio.Future[Any]] = [creation.future]
        if slot.runner is not None:
            futures.append(slot.runner)
        await _wait_for_first(futures)
        if creation.future.done():
            return creation.future.result()
        runtime = slot.runtime
        if runtime is not None and runtime.reply_message is not None:
            return runtime.reply_message
        raise build_creation_error(slot)

    async def continue_task(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult:
        """Open the next turn of the message's task, and run it."""
        if self._budgets is not None:
            account = submission.account or ANONYMOUS_ACCOUNT
            await self._budgets.check(account, submission.caller)
        try:
            row = await self._get_interrupted_row(agent, message, submission.account)
        except (TaskEndedError, UnsupportedOperationError):
            # Another client's message was first.
            raise
        is_child = submission.HasField("parent")
        self._admissions.check(agent.card.name, row.account, is_child=is_child)
        # No await since the check, so that only one of two concurrent messages opens the turn.
        slot = self._slots.reserve(row.task_id)
        self._slots.admit(slot, agent, row.account)
        future: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()

        async def open_turn() -> bool:
            try:
                await self._register_webhook(row, submission)
                slot.runtime = await self._turns.load(row.task_id)
                await slot.runtime.open_turn(await self._files.store_message(row.task_id, message))
                slot.runtime = await self._turns.load(row.task_id)
            except TrunklineError as error:
                future.set_exception(error)
                future.exception()  # Marks it as retrieved: the caller may be gone.
                return False
            snapshot = slot.runtime.snapshot
            answers = answers_since(snapshot.approvals, since=snapshot.turn)
            future.set_result(
                SubmitResult(
                    row.task_id, snapshot.turn, snapshot.sequence, is_new=False, answers=answers
                )
            )
            return True

        code = self._slots.start(agent, slot, open_turn)
        futures: list[asyncio.Future[Any]] = [future, code]
        await _wait_for_first(futures)
        if not future.done():
            raise TaskEndedError(row.task_id, "being ended")
        return future.result()

    def _find_timeout_s(
        self, agent: Agent, message: message_pb2.Message, *, is_root: bool
    ) -> float | None:
        """Return the longest lifetime of a new task; None: no limit."""
        own_s = agent.timeout_s
        if isinstance(agent, TimedAgent):
            own_s = agent.find_time_limit_s(message)
        own_s = self._settings.agent_timeouts.get(agent.card.name, own_s)
        tree_s = self._settings.tree.timeout_s if is_root else None
        return min((limit for limit in (own_s, tree_s) if limit is not None), default=None)

    def _build_webhook(
        self,
        task_id: str,
        created: event_pb2.TaskCreated,
        submission: message_service_pb2.Submission,
    ) -> WebhookRow | None:
        """Return the webhook to create with a task, if the submission has one."""
        if not submission.HasField("push_notification_config"):
            return None
        config, version = submission.push_notification_config, submission.push_notification_version
        return to_row(self._push_configs.build_for_new_task(task_id, created, config, version))

    def _on_created(self, new_task: NewTask, *, is_new: bool) -> None:
        if is_new and new_task.webhook is not None:
            self._push_configs.outbox.activate(self._journal, from_row(new_task.webhook))

    async def _register_webhook(
        self, row: TaskRow, submission: message_service_pb2.Submission
    ) -> None:
        """Register the webhook of a task's next message, if the submission has one."""
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
        if get_account_row(self._journal, task_id, account).agent != agent.card.name:
            raise TaskNotFoundError(task_id)
        slot = self._slots.find(task_id)
        if slot is not None and slot.runtime is not None and slot.runtime.is_over:
            # The turn or the task is ending, which takes no longer than the grace period.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.cancel_grace_s):
                    await slot.released.wait()
        row = get_account_row(self._journal, task_id, account)
        if message.context_id and message.context_id != row.context_id:
            raise InvalidArgumentError("message.contextId", "does not match the task's context")
        if row.state in TERMINAL:
            raise TaskEndedError(task_id, state_name(row.state))
        if row.state not in INTERRUPTED or self._slots.find(task_id) is not None:
            raise UnsupportedOperationError(
                "a message to a task that works", "wait until it asks, or start another task"
            )
        return row


def build_creation_error(slot: TaskSlot) -> TrunklineError:
    """Return the error for a turn that ended without a task and without a direct reply."""
    creation, runtime = slot.creation, slot.runtime
    if creation is not None and creation.future.done():
        error = creation.future.exception()
        if isinstance(error, TrunklineError):
            return error
    deadline = None if runtime is None else runtime.deadline
    if deadline is not None and deadline <= datetime.now(UTC):
        return PeerTimeoutError(f"agent of {slot.task_id!r}", DEADLINE_PASSED)
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
