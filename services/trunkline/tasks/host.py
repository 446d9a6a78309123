"""A host's tasks: submitted, run, read, watched and canceled."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from trunkline.errors import (
    AgentNotFoundError,
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.journal.fold import Fold
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.agent import Agent
from trunkline.tasks.context import TaskContext
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.flushing import Flushing
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, state_name
from trunkline.tasks.runs import Runs
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.submission import (
    ANONYMOUS,
    Accepted,
    Creation,
    submission_key,
    task_created,
)
from trunkline.tasks.validation import check_message
from trunkline.tasks.watch import TaskWatch, check_cursor
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

logger = logging.getLogger(__name__)

# Cancels a task of any host on behalf of an account: (task id, account).
CancelChild = Callable[[str, str], Awaitable[None]]


class TaskHost:
    """Runs the tasks of some agents on one journal. An async context manager: tasks live inside.

    What is accepted is run to an end or to a question, whether or not the caller is still there.
    """

    def __init__(
        self,
        journal: Journal,
        agents: Sequence[Agent],
        *,
        settings: TaskSettings | None = None,
        cancel_child: CancelChild | None = None,
    ) -> None:
        """`cancel_child` is how descendants on this and other hosts are canceled."""
        self.journal = journal
        self.agents = {agent.card.name: agent for agent in agents}
        self._settings = settings or TaskSettings()
        self._cancel_child = cancel_child
        self._is_draining = False
        self._group = asyncio.TaskGroup()
        self._runs = Runs(self._group, agents, self._settings)
        self._flushing = Flushing(self._settings.flush_interval_s, journal_id=journal.id)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await self._recover()
        self._lease = self._group.create_task(self._keep_lease())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drain(0)
        self._lease.cancel()
        await self._group.__aexit__(exc_type, exc, traceback)

    async def submit(
        self,
        agent_name: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> Accepted | message_pb2.Message:
        """Take a message: for a new task, for the next turn of one, or for a direct reply.

        Returns when the task (or the reply) exists. Repeating a submission that names its task, or
        is idempotent, gives the task that it made.

        Raises:
            AgentNotFoundError, TaskNotFoundError, InvalidArgumentError,
            ContentTypeNotSupportedError, MessageKeyReusedError, TaskEndedError,
            UnsupportedOperationError, OverloadedError, PeerUnavailableError.
        """
        if self._is_draining and not submission.HasField("parent"):
            # A task that may still finish may also still call its children.
            raise PeerUnavailableError("this host", "it is shutting down; try again elsewhere")
        agent = self.agents.get(agent_name)
        if agent is None:
            raise AgentNotFoundError(agent_name)
        check_message(agent.card, message)
        if message.task_id:
            return await self._next_turn(agent, message, submission)
        return await self._first_turn(agent, message, submission)

    async def snapshot(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task of the account. TaskNotFoundError."""
        self._own_row(task_id, account)
        return await self.journal.snapshot(task_id)

    def list(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """List tasks of the account, newest status first. InvalidArgumentError."""
        query = task_service_pb2.ListTasksRequest()
        query.CopyFrom(request)
        query.account = request.account or ANONYMOUS
        return self.journal.list(query)

    def watch(  # noqa: PLR0913  what a reader may choose, each by name
        self,
        task_id: str,
        *,
        account: str,
        after: int | None = None,
        epoch: int = 0,
        with_snapshot: bool = False,
        until_head: bool = False,
        until_turn_ends: bool = False,
    ) -> TaskWatch:
        """Read a task's events behind a cursor, or from the head on; see `trunkline.tasks.watch`.

        `epoch` is the one in which the cursor was read, 0 if that is unknown.

        Raises:
            TaskNotFoundError, InvalidArgumentError, CursorExpiredError.
        """
        row = self._own_row(task_id, account)
        if after is not None:
            check_cursor(self.journal, task_id, after, epoch)
        return TaskWatch(
            self.journal,
            task_id,
            after=row.head if after is None else after,
            with_snapshot=with_snapshot,
            until_head=until_head,
            until_turn_ends=until_turn_ends,
        )

    async def wait_turn(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Wait until the task has ended or is interrupted, and return its fold."""
        while (row := self.journal.row(task_id)).state not in TERMINAL | INTERRUPTED:
            await self.journal.wait(task_id, row.head)
        return await self.journal.snapshot(task_id)

    async def cancel(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Stop a task and its descendants; return it, ended.

        The agent's code has `cancel_grace_s` to clean up; what it emits from now on is refused.

        Raises:
            TaskNotFoundError: no such task of the account.
            TaskNotCancelableError: it has ended, or ended before the cancel took hold.
        """
        row = self._own_row(task_id, account)
        run = self._runs.find(task_id)
        state = row.state if run is None else run.context.state
        if state in TERMINAL:
            raise TaskNotCancelableError(task_id, state_name(state))
        context = await self._context_of(task_id) if run is None else run.context
        if run is not None:
            run.stop()
            await self._runs.wait_stopped(run)
        await self._cancel_children(context)
        if context.state not in TERMINAL:
            await context.end(State.TASK_STATE_CANCELED, reason)
        return await self.journal.snapshot(task_id)

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, give what runs `grace_s` to end, and then fail what is left."""
        self._is_draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                for run in self._runs.all():
                    await run.done.wait()
        left = self._runs.all()
        for run in left:
            run.stop()
        for run in left:
            await self._runs.wait_stopped(run)
            await self._cancel_children(run.context)
            if run.context.state not in TERMINAL | INTERRUPTED:
                await run.context.end(State.TASK_STATE_FAILED, "the host shut down; send it again")

    async def _first_turn(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> Accepted | message_pb2.Message:
        task_id = submission.task_id or self.journal.new_task_id()
        if not task_id.startswith(f"{self.journal.id}-"):
            raise InvalidArgumentError("submission.task_id", "is not of this host's journal")
        if submission.task_id and (known := self._find_row(task_id)) is not None:
            return Accepted(task_id, 1, known.head, is_new=False)
        self._runs.check_admission(agent)
        created = task_created(agent.card.name, task_id, message, submission)
        key = submission_key(agent.card.name, message, submission)
        creation = Creation(self.journal, task_id, created, key)
        if agent.direct_replies:
            return await self._run_undecided(agent, creation, task_id, created)
        accepted = await creation.create()
        if accepted.is_new:
            context = self._first_context(task_id, created)
            self._runs.start(agent, self._runs.reserve(context))
        return accepted

    async def _run_undecided(
        self, agent: Agent, creation: Creation, task_id: str, created: event_pb2.TaskCreated
    ) -> Accepted | message_pb2.Message:
        """Run an agent that may still answer directly; the task exists once it emits anything."""

        async def create() -> None:
            try:
                if (await creation.create()).is_new:
                    return
            except TrunklineError as error:
                creation.accepted.set_exception(error)
            # Refused, or made before by the same submission: this turn must not go on.
            run.is_stopped = True
            run.context.begin_cancel()
            raise asyncio.CancelledError

        run = self._runs.reserve(self._first_context(task_id, created, create=create))
        code = self._runs.start(agent, run)
        settled: list[asyncio.Future[Any]] = [creation.accepted, code]
        await asyncio.wait(settled, return_when=asyncio.FIRST_COMPLETED)
        if creation.accepted.done():
            return creation.accepted.result()
        if run.context.reply_message is not None:
            return run.context.reply_message
        raise PeerUnavailableError("this host", "the task could not be journaled; try again")

    async def _next_turn(
        self,
        agent: Agent,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> Accepted:
        row = await self._waiting_row(agent, message, submission.account)
        self._runs.check_admission(agent)
        context = await self._context_of(row.task_id)
        # Reserved without a wait in between: of two messages at once, one opens the turn.
        self._check_waits(row.task_id)
        run = self._runs.reserve(context)
        try:
            await context.open_turn(message)
        except BaseException:
            self._runs.release(run)
            raise
        run.context = await self._context_of(row.task_id)
        self._runs.start(agent, run)
        opened = run.context.snapshot
        return Accepted(row.task_id, opened.turn, opened.sequence, is_new=False)

    async def _waiting_row(
        self, agent: Agent, message: message_pb2.Message, account: str
    ) -> TaskRow:
        """The row of the task that the message is for, if it waits for one."""
        task_id = message.task_id
        if self._own_row(task_id, account).agent != agent.card.name:
            raise TaskNotFoundError(task_id)
        run = self._runs.find(task_id)
        if run is not None and run.context.is_over:
            # The question is out, the code that asked is just about to return.
            await self._runs.wait_stopped(run)
        row = self._own_row(task_id, account)
        if message.context_id and message.context_id != row.context_id:
            raise InvalidArgumentError("message.contextId", "is not that of the task")
        if row.state in TERMINAL:
            raise TaskEndedError(task_id, state_name(row.state))
        self._check_waits(task_id)
        return row

    def _check_waits(self, task_id: str) -> None:
        waits = self.journal.row(task_id).state in INTERRUPTED
        if not waits or self._runs.find(task_id) is not None:
            raise UnsupportedOperationError(
                "a message to a task that works", "wait until it asks, or start another task"
            )

    async def _cancel_children(self, context: TaskContext) -> None:
        """Cancel the children that the agent's code has left running."""
        if self._cancel_child is None or self._find_row(context.id) is None:
            return
        context.begin_cancel()
        async with asyncio.TaskGroup() as group:
            for child in (await self.journal.snapshot(context.id)).children:
                if not (child.HasField("finished") and child.finished.state in TERMINAL):
                    group.create_task(self._cancel_one_child(context, child.started))

    async def _cancel_one_child(self, context: TaskContext, child: event_pb2.ChildStarted) -> None:
        if self._cancel_child is None:
            return
        finished = event_pb2.ChildFinished(task_id=child.task_id, agent=child.agent)
        try:
            await self._cancel_child(child.task_id, context.account)
        except TaskNotFoundError:
            return  # The call that makes it was canceled before it was made.
        except TrunklineError as error:
            # It had ended, or can't be reached: then its deadline and its own host see to it.
            extra = {"task_id": child.task_id, "reason": error.reason}
            logger.info("child.not_canceled", extra=extra)
            return
        finished.state = State.TASK_STATE_CANCELED
        await context.record(event_pb2.Event(child_finished=finished))

    async def _recover(self) -> None:
        """End what an earlier life of this journal left running: its code is gone."""
        for row in self.journal.unfinished():
            if row.state in INTERRUPTED:
                continue
            logger.warning("task.abandoned", extra={"task_id": row.task_id, "agent": row.agent})
            await (await self._context_of(row.task_id)).end(
                State.TASK_STATE_FAILED, "the host stopped while it worked on this; send it again"
            )

    async def _keep_lease(self) -> None:
        """Renew the host's lease; losing it stops everything that runs."""
        while True:
            try:
                self.journal.renew(self._settings.lease_s)
            except FencedError:
                logger.error("host.lease_lost", extra={"journal": self.journal.id})
                self._is_draining = True
                for run in self._runs.all():
                    run.stop()
                return
            except JournalUnavailableError as error:
                # A full disk may have room again before the lease is over.
                logger.error("host.lease_not_renewed", extra={"problem": error.problem})
            await asyncio.sleep(self._settings.lease_s / 3)

    def _own_row(self, task_id: str, account: str) -> TaskRow:
        """The row, if the account may see it: else it doesn't exist."""
        row = self._find_row(task_id)
        if row is None or row.account != (account or ANONYMOUS):
            raise TaskNotFoundError(task_id)
        return row

    def _find_row(self, task_id: str) -> TaskRow | None:
        try:
            return self.journal.row(task_id)
        except TaskNotFoundError:
            return None

    def _emitter(self, task_id: str) -> Emitter:
        return Emitter(
            self.journal,
            task_id,
            self.journal.epoch,
            flushing=self._flushing,
            pending_limit_bytes=self._settings.pending_limit_bytes,
        )

    async def _context_of(self, task_id: str) -> TaskContext:
        """A context to go on with a task that isn't running."""
        snapshot = await self.journal.snapshot(task_id)
        return TaskContext(
            snapshot,
            snapshot.task.history[-1],
            self._emitter(task_id),
            forwarded=await self.journal.forwarded(task_id),
        )

    def _first_context(
        self,
        task_id: str,
        created: event_pb2.TaskCreated,
        *,
        create: Callable[[], Awaitable[None]] | None = None,
    ) -> TaskContext:
        """A context for a task that is journaled as `created`, or will be."""
        fold = Fold(task_id)
        header = event_pb2.BatchHeader(
            task_id=task_id, epoch=self.journal.epoch, first_sequence=1, count=1
        )
        events = [event_pb2.Event(created=created)]
        fold.apply(event_pb2.EventBatch(header=header, events=events))
        return TaskContext(fold.snapshot(), created.message, self._emitter(task_id), create=create)
