"""Takes messages: for new tasks, for the next turn of a task, and for direct replies."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.journal.journal import Journal, TaskRow
from trunkline.journal.store import WebhookRow
from trunkline.tasks.accounts import find_row, own_row
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.files import JournalFiles
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, state_name
from trunkline.tasks.outbox import PushConfigs
from trunkline.tasks.outbox.webhook import from_row, to_row
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.submission import (
    NewTask,
    SubmitResult,
    TaskCreation,
    build_task_created,
    idempotency_key,
)
from trunkline.tasks.turn_factory import TurnFactory
from trunkline.v1 import event_pb2, message_pb2, message_service_pb2

# From the commit over whoever submitted to what is written to the wire.
_TURNS_TO_ANSWER: Final = 5


class SubmitHandler:
    """Takes messages for a host's agents; `TaskHost.submit` says what that promises and raises.

    Whatever follows from a message is done in the place of its task, never in the call of whoever
    sent it, who may leave at any moment.
    """

    def __init__(  # noqa: PLR0913  what it works with, each by name
        self,
        journal: Journal,
        settings: TaskSettings,
        *,
        runs: TaskSlots,
        contexts: TurnFactory,
        admissions: AdmissionControl,
        deadlines: DeadlineTimer,
        push_configs: PushConfigs,
        files: JournalFiles,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._runs = runs
        self._contexts = contexts
        self._admissions = admissions
        self._deadlines = deadlines
        self._push_configs = push_configs
        self._files = files

    async def create_task(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult | message_pb2.Message:
        """Make a task of the message and run it, or have it answered directly."""
        task_id = submission.task_id or self._journal.new_task_id()
        if not task_id.startswith(f"{self._journal.id}-"):
            raise InvalidArgumentError("submission.task_id", "is not of this host's journal")
        # Before its place is held: nobody may come between that and its beginning.
        kept = await self._files.store_message(task_id, message)
        if submission.task_id:
            if (known := find_row(self._journal, task_id)) is not None:
                return SubmitResult(task_id, 1, known.head, is_new=False)
            if (run := self._runs.find(task_id)) is not None and run.creation is not None:
                return await self._outcome(run, run.creation)
        name = agent.card.name
        self._admissions.check(name, is_child=submission.HasField("parent"))
        timeout_s = self._settings.agent_timeouts.get(name, agent.timeout_s)
        created = build_task_created(name, task_id, kept, submission, timeout_s=timeout_s)
        new = NewTask(
            task_id,
            created,
            idempotency_key(name, message, submission),
            self._webhook(task_id, created, submission),
        )
        run = self._runs.reserve(task_id)
        self._runs.admit(run, agent)
        if created.HasField("deadline"):
            self._deadlines.add(task_id, created.deadline.ToDatetime(tzinfo=UTC))
        if agent.direct_replies:
            return await self._run_undecided(agent, run, new)

        def on_made(is_new: bool) -> None:  # noqa: FBT001
            self._on_made(new, is_new=is_new)
            if is_new and not run.is_stopped:
                self._runs.start(agent, run, _answer_first)
            elif run.termination is None:
                self._runs.release(run)

        run.context = self._contexts.build_first(task_id, created)
        run.creation = TaskCreation(self._journal, new, on_made)
        run.creation.begin()
        return await run.creation.wait()

    async def _run_undecided(
        self, agent: Agent, run: TaskSlot, new: NewTask
    ) -> SubmitResult | message_pb2.Message:
        """Run an agent that may still answer directly; the task exists once it emits anything."""

        async def create() -> None:
            creation.begin()
            with contextlib.suppress(TrunklineError):
                if (await creation.wait()).is_new:
                    return
            # Refused, or made before by the same submission: this turn must not go on.
            run.stop()
            await asyncio.Event().wait()

        creation = TaskCreation(
            self._journal, new, lambda is_new: self._on_made(new, is_new=is_new)
        )
        run.creation = creation
        run.context = self._contexts.build_first(new.task_id, new.created, create=create)
        self._runs.start(agent, run)
        return await self._outcome(run, creation)

    async def _outcome(
        self, run: TaskSlot, creation: TaskCreation
    ) -> SubmitResult | message_pb2.Message:
        """Wait until the task is made, or answered without one."""
        settled: list[asyncio.Future[Any]] = [creation.accepted]
        if run.runner is not None:
            settled.append(run.runner)
        await _first_of(settled)
        if creation.accepted.done():
            return creation.accepted.result()
        context = run.context
        if context is not None and context.reply_message is not None:
            return context.reply_message
        if (
            context is not None
            and context.deadline is not None
            and (context.deadline <= datetime.now(UTC))
        ):
            raise PeerTimeoutError(f"agent of {run.task_id!r}", DEADLINE_PASSED)
        raise PeerUnavailableError("this host", "the task could not be journaled; try again")

    async def continue_task(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult:
        """Open the next turn of the task that the message is for, and run it."""
        row = await self._waiting_row(agent, message, submission.account)
        self._admissions.check(agent.card.name, is_child=submission.HasField("parent"))
        # Reserved without a wait in between: of two messages at once, one opens the turn.
        run = self._runs.reserve(row.task_id)
        self._runs.admit(run, agent)
        opened: asyncio.Future[SubmitResult] = asyncio.get_running_loop().create_future()

        async def opening() -> bool:
            try:
                await self._register(row, submission)
                run.context = await self._contexts.load(row.task_id)
                await run.context.open_turn(await self._files.store_message(row.task_id, message))
                run.context = await self._contexts.load(row.task_id)
            except TrunklineError as error:
                opened.set_exception(error)
                opened.exception()  # Whoever waited may have left.
                return False
            snapshot = run.context.snapshot
            opened.set_result(
                SubmitResult(row.task_id, snapshot.turn, snapshot.sequence, is_new=False)
            )
            return True

        code = self._runs.start(agent, run, opening)
        settled: list[asyncio.Future[Any]] = [opened, code]
        await _first_of(settled)
        if not opened.done():
            raise TaskEndedError(row.task_id, "being ended")
        return opened.result()

    def _webhook(
        self,
        task_id: str,
        created: event_pb2.TaskCreated,
        submission: message_service_pb2.Submission,
    ) -> WebhookRow | None:
        """The webhook that is made with a task."""
        if not submission.HasField("push_notification_config"):
            return None
        config, version = submission.push_notification_config, submission.push_notification_version
        return to_row(self._push_configs.build_for_new_task(task_id, created, config, version))

    def _on_made(self, new: NewTask, *, is_new: bool) -> None:
        if is_new and new.webhook is not None:
            self._push_configs.outbox.activate(self._journal, from_row(new.webhook))

    async def _register(self, row: TaskRow, submission: message_service_pb2.Submission) -> None:
        """Register the webhook that comes with a task's next message."""
        if submission.HasField("push_notification_config"):
            config = submission.push_notification_config
            await self._push_configs.put(
                self._journal, row, config, submission.push_notification_version
            )

    async def _waiting_row(
        self, agent: Agent, message: message_pb2.Message, account: str
    ) -> TaskRow:
        """The row of the task that the message is for, if it waits for one."""
        task_id = message.task_id
        if own_row(self._journal, task_id, account).agent != agent.card.name:
            raise TaskNotFoundError(task_id)
        run = self._runs.find(task_id)
        if run is not None and run.context is not None and run.context.is_over:
            # The question is out, and the code that asked is just about to return; or it is being
            # ended, which takes no longer.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.cancel_grace_s):
                    await run.released.wait()
        row = own_row(self._journal, task_id, account)
        if message.context_id and message.context_id != row.context_id:
            raise InvalidArgumentError("message.contextId", "is not that of the task")
        if row.state in TERMINAL:
            raise TaskEndedError(task_id, state_name(row.state))
        if row.state not in INTERRUPTED or self._runs.find(task_id) is not None:
            raise UnsupportedOperationError(
                "a message to a task that works", "wait until it asks, or start another task"
            )
        return row


async def _answer_first() -> bool:
    """Let the news that the task exists go out before its code runs, which may hold the loop."""
    for _ in range(_TURNS_TO_ANSWER):
        await asyncio.sleep(0)
    return True


async def _first_of(futures: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until one of the futures is done, as `asyncio.wait` does at three times the cost."""
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
