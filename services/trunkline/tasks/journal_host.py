"""Serves the tasks of one journal: composes its parts, starts and stops them."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Final, Self

from trunkline.conversations.memory import AgentMemory, clean_daily
from trunkline.errors import (
    AgentNotFoundError,
    TaskEndedError,
    TrunklineError,
)
from trunkline.journal.journal import Journal, TaskRow
from trunkline.observe import telemetry
from trunkline.tasks.approval_router import ApprovalRouter, agent_absent_error
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.emitter import FlushScheduler
from trunkline.tasks.execution import TaskExecution, TaskExecutions
from trunkline.tasks.files import JournalFiles, sweep
from trunkline.tasks.journal_lease import JournalLease
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, state_name
from trunkline.tasks.message_deliveries import MessageDeliveries
from trunkline.tasks.orphaned_children import OrphanedChildren
from trunkline.tasks.recovery import Recovery
from trunkline.tasks.resources import HostResources, JournalResources
from trunkline.tasks.submission import SubmitHandler
from trunkline.tasks.task_rows import get_account_row
from trunkline.tasks.termination import TaskTerminator

logger = logging.getLogger(__name__)

# The time that code has to clean up after its deadline.
_DEADLINE_GRACE_S: Final = 0.1

# An execution that begins has no turn yet. Nothing reports when it gets one.
_EXECUTION_CHECK_S: Final = 0.02


class JournalHost:
    """Runs the tasks of one journal while this host holds its lease.

    `ServedJournals` has one for each journal, and `TaskHost` is the interface for callers. On
    entering, the unfinished tasks in the journal are recovered; see `trunkline.tasks.recovery`.
    An async context manager.
    """

    def __init__(self, journal: Journal, resources: HostResources, memory: AgentMemory) -> None:
        """`resources` are shared by all journals of the host. `memory` is closed at the end."""
        self.journal = journal
        self._memory = memory
        self._agents = resources.agents
        settings = resources.settings
        self.lease: JournalLease = JournalLease(journal, settings.lease_s, on_lost=self._stop)
        self._push_configs = resources.push_configs
        self.is_draining: bool = False
        """True once new tasks are refused, except children of running tasks."""
        self._group = asyncio.TaskGroup()
        self.flush_scheduler: FlushScheduler = FlushScheduler(
            settings.flush_interval_ms / 1000,
            journal_id=journal.id,
            on_fenced=self.lease.mark_lost,
        )
        self.deadlines: DeadlineTimer = DeadlineTimer(self._expire)
        """The deadlines of the running tasks."""
        self.files: JournalFiles = JournalFiles(journal, resources.others.open_content)
        self.executions: TaskExecutions = TaskExecutions(
            JournalResources(resources, journal, self.flush_scheduler, self.files, memory),
            on_release=self._on_release,
        )
        self.terminator: TaskTerminator = TaskTerminator(self._group, self.executions)
        self._orphans = OrphanedChildren(journal, resources.others.cancel_child)
        self.submit_handler: SubmitHandler = SubmitHandler(self.executions, self.deadlines)
        self.deliveries: MessageDeliveries = MessageDeliveries(
            self._group, self.executions.resources, self.submit_handler
        )
        self.approval_router: ApprovalRouter = ApprovalRouter(self.executions, self.submit_handler)
        self._background_tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        recovery = Recovery(self.executions, self.terminator, self.deadlines)
        reserved = recovery.reserve()
        running = [row.task_id for row, execution in reserved if execution is not None]
        await self._push_configs.outbox.open(self.journal)
        await self._group.__aenter__()
        self._background_tasks = [
            self._group.create_task(self.lease.renew_until_lost()),
            self._group.create_task(recovery.recover(reserved)),
            self._group.create_task(self._resume_answered(reserved)),
            self._group.create_task(self._orphans.run()),
            self._group.create_task(sweep(self.files, self.executions.has)),
            self._group.create_task(clean_daily(self._memory)),
        ]
        for removal in self._memory.order.keep(running):
            self._start(removal)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drain(0)
        self.deliveries.close()
        self._push_configs.outbox.close(self.journal)
        self.deadlines.close()
        # Writers that wait for a retry get an error.
        self.flush_scheduler.close()
        self._memory.order.close()
        for task in self._background_tasks:
            task.cancel()
        for execution in self.executions.all():
            if execution.termination is not None:
                execution.termination.cancel()
        try:
            await self._group.__aexit__(exc_type, exc, traceback)
        finally:
            await self._memory.close()

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost or released; nothing is written or answered after that."""
        return self.lease.lost

    async def drain(self, grace_s: float) -> None:
        """Refuse new tasks, wait `grace_s` for running tasks, then fail the remaining tasks."""
        self.is_draining = True
        await self.terminator.drain(grace_s, lost=self.lost)

    @property
    def has_left_tickets(self) -> bool:
        """Return whether tickets are left, which hold up conversations until a takeover."""
        return self._memory.order.has_left_tickets

    @property
    def needed_agents(self) -> frozenset[str]:
        """The agents of the unfinished tasks if no task runs, else an empty set."""
        rows = self.journal.list_unfinished()
        if self.executions.all() or any(row.state not in INTERRUPTED for row in rows):
            return frozenset()
        return frozenset(row.agent for row in rows)

    async def release(self) -> None:
        """Release an idle journal to a host that runs the agents of its tasks.

        Later calls raise PeerUnavailableError.
        """
        self.lease.release()
        await self.close()

    async def close(self, *, for_takeover: bool = False) -> None:
        """Close the journal and the memory.

        Another host takes it over if its tasks need agents that don't run here, if its tickets
        hold up conversations, or if `for_takeover`.
        """
        await self._memory.close()
        with contextlib.suppress(TrunklineError):
            missing_agents = {
                row.agent for row in self.journal.list_unfinished()
            } - self._agents.keys()
            is_needed = bool(missing_agents) or self.has_left_tickets
            await self.journal.close(for_takeover=for_takeover or is_needed)

    def _expire(self, task_id: str) -> None:
        """Fail a task whose deadline has passed."""
        execution = self.executions.find(task_id)
        if execution is None:
            latest = self.journal.latest(task_id)
            if latest is None or latest[1] in TERMINAL:
                return
            execution = self.executions.reserve(task_id)
        self.terminator.terminate(
            execution,
            State.TASK_STATE_FAILED,
            DEADLINE_PASSED,
            grace_s=_DEADLINE_GRACE_S,
            error_type=telemetry.TIMEOUT,
        )

    def _on_release(self, execution: TaskExecution) -> None:
        """Handle the release of an execution.

        Ends its place in the conversation, its deadline, its open children, and its late answers.
        """
        turn = execution.turn
        is_leaving = turn is not None and turn.pause.is_leaving
        if not is_leaving and not self.lost.is_set():
            removal = self._memory.order.end_turn(execution.task_id)
            if removal is not None:
                self._start(removal)
        if turn is None or turn.state_value not in INTERRUPTED:
            self.deadlines.discard(execution.task_id)
        if turn is not None and turn.state_value in TERMINAL and turn.children.all:
            self._start(self._orphans.add(turn))
        if turn is None or self.is_draining:
            return
        if turn.state_value in INTERRUPTED and turn.pending_approvals.answers(
            since=turn.number + 1
        ):
            self._start(self.approval_router.resume_answered(execution.task_id))
        if turn.snapshot.HasField("parent") and turn.pending_approvals.answers(since=turn.number):
            self._start(self.approval_router.notify_parent(execution.task_id))

    async def _resume_answered(
        self, reserved: Sequence[tuple[TaskRow, TaskExecution | None]]
    ) -> None:
        """Open the next turns of tasks with answers from before the last host stopped."""
        for row, execution in reserved:
            if execution is None:
                await self.approval_router.resume_answered(row.task_id)
                await asyncio.sleep(0)

    def _stop(self) -> None:
        """Stop all tasks and close the journal, because the lease is over."""
        self.is_draining = True
        self._push_configs.outbox.close(self.journal)
        self.deadlines.close()
        for execution in self.executions.all():
            execution.stop()
        self.flush_scheduler.close()
        self._start(self.close())

    def _start(self, work: Coroutine[object, object, None]) -> None:
        """Run work in the group of the host, unless the group has ended or fails.

        Code that ignores its cancellation may return after that. The journal is then closed.
        """
        try:
            self._group.create_task(work)
        except RuntimeError:
            work.close()

    async def build_absence_error(self, agent: str, task_id: str, account: str) -> TrunklineError:
        """Return the error for a message to an agent that does not run here.

        `task_id` is the task of the message, or empty.

        Raises:
            TaskNotFoundError: the account has no such task.
        """
        if task_id:
            row = await get_account_row(self.journal, task_id, account)
            if row.agent == agent and row.is_ended:
                return TaskEndedError(task_id, state_name(row.state))
            if row.agent == agent:
                return agent_absent_error(agent)
        return AgentNotFoundError(agent)

    async def get_account_row(self, task_id: str, account: str) -> TaskRow:
        """Return the row of a task of the account.

        Raises:
            TaskNotFoundError: no such task of the account.
            PeerUnavailableError: another host has the journal.
        """
        self.lease.check()
        return await get_account_row(self.journal, task_id, account)

    async def set_paused(self, task_id: str, account: str, *, is_paused: bool) -> None:
        """Pause or resume a task, whether a turn of it runs or not.

        Raises:
            TaskEndedError: it has ended.
            TaskNotFoundError, PeerUnavailableError: as `get_account_row`.
        """
        while (execution := self.executions.find(task_id)) is not None:
            turn = execution.turn
            if turn is not None and not turn.is_over:
                await turn.pause.change(turn.state_value, is_paused=is_paused)
                return
            # The turn begins, or has ended.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXECUTION_CHECK_S):
                    await execution.released.wait()
        row = await self.get_account_row(task_id, account)
        if row.is_ended:
            raise TaskEndedError(task_id, state_name(row.state))
        execution = self.executions.reserve(task_id)
        try:
            turn = await self.executions.load_turn(task_id)
            await turn.pause.change(turn.state_value, is_paused=is_paused)
        finally:
            self.executions.release(execution)
