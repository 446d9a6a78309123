"""Serves the tasks of one journal: composes its parts, starts and stops them."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from trunkline import telemetry
from trunkline.errors import (
    AgentNotFoundError,
    TaskEndedError,
    TrunklineError,
)
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.approval_router import AnswerApproval, ApprovalRouter, agent_absent_error
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.emitter import FlushScheduler
from trunkline.tasks.files import JournalFiles, OpenRemote, sweep
from trunkline.tasks.journal_lease import JournalLease
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, state_name
from trunkline.tasks.loop_watch import LoopWatch
from trunkline.tasks.orphaned_children import OrphanedChildren
from trunkline.tasks.outbox import PushConfigs
from trunkline.tasks.recovery import Recovery
from trunkline.tasks.runner import TurnRunner
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.submission import find_row, get_account_row
from trunkline.tasks.submit_handler import SubmitHandler
from trunkline.tasks.termination import CancelChild, TaskTerminator, drain
from trunkline.tasks.turn_factory import TurnFactory

logger = logging.getLogger(__name__)

# A turn that begins has no runtime yet. Nothing reports when it gets one.
_SLOT_CHECK_S: Final = 0.02


class JournalHost:
    """Runs the tasks of one journal while this host holds its lease.

    `TaskHost` has one for each journal that it serves, and is the interface for callers. On
    entering, the unfinished tasks in the journal are recovered; see `trunkline.tasks.recovery`.
    An async context manager.
    """

    def __init__(  # noqa: PLR0913  one for each collaborator
        self,
        journal: Journal,
        agents: Sequence[Agent],
        *,
        settings: TaskSettings,
        admissions: AdmissionControl,
        watch: LoopWatch,
        push_configs: PushConfigs,
        cancel_child: CancelChild,
        answer_parent: AnswerApproval,
        checkpoint_path: Path | None,
        open_remote: OpenRemote | None,
        budgets: Budgets | None,
    ) -> None:
        """The arguments are those of `TaskHost`.

        `admissions`, `watch` and `push_configs` are shared by all journals of the host.
        """
        self.journal = journal
        self.agents: dict[str, Agent] = {agent.card.name: agent for agent in agents}
        self._settings = settings
        self.lease: JournalLease = JournalLease(journal, self._settings.lease_s, on_lost=self._stop)
        self._push_configs = push_configs
        self.is_draining: bool = False
        """True once new tasks are refused, except children of running tasks."""
        self._group = asyncio.TaskGroup()
        self._admissions = admissions
        self.flush_scheduler: FlushScheduler = FlushScheduler(
            self._settings.flush_interval_s,
            journal_id=journal.id,
            on_fenced=self.lease.mark_lost,
        )
        self.deadlines: DeadlineTimer = DeadlineTimer(self._expire)
        """The deadlines of the running tasks."""
        runner = TurnRunner(journal, watch, settings.content)
        self.slots: TaskSlots = TaskSlots(self._admissions, runner, on_release=self._on_release)
        self.files: JournalFiles = JournalFiles(journal, open_remote)
        self._turns = TurnFactory(
            journal, self.flush_scheduler, self._settings, checkpoint_path, self.files, budgets
        )
        self.terminator: TaskTerminator = TaskTerminator(
            self._group,
            self.slots,
            load=self._turns.load,
            cancel_child=cancel_child,
            agents=self.agents,
        )
        self._orphans = OrphanedChildren(journal, cancel_child)
        self.submit_handler: SubmitHandler = SubmitHandler(
            journal,
            self._settings,
            slots=self.slots,
            turns=self._turns,
            admissions=self._admissions,
            deadlines=self.deadlines,
            push_configs=self._push_configs,
            files=self.files,
            budgets=budgets,
        )
        self.approval_router: ApprovalRouter = ApprovalRouter(
            journal,
            self.agents,
            slots=self.slots,
            submit_handler=self.submit_handler,
            answer_parent=answer_parent,
        )
        self._background_tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        recovery = Recovery(
            self.journal,
            self.agents,
            self._settings,
            slots=self.slots,
            terminator=self.terminator,
            deadlines=self.deadlines,
            turns=self._turns,
        )
        reserved = recovery.reserve()
        self._push_configs.outbox.open(self.journal)
        await self._group.__aenter__()
        self._background_tasks = [
            self._group.create_task(self.lease.renew_until_lost()),
            self._group.create_task(recovery.recover(reserved)),
            self._group.create_task(self._resume_answered(reserved)),
            self._group.create_task(self._orphans.run()),
            self._group.create_task(sweep(self.files, self.slots.has)),
        ]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drain(0)
        self._push_configs.outbox.close(self.journal)
        self.deadlines.close()
        # Writers that wait for a retry get an error.
        self.flush_scheduler.close()
        for task in self._background_tasks:
            task.cancel()
        for slot in self.slots.all():
            if slot.termination is not None:
                slot.termination.cancel()
        await self._group.__aexit__(exc_type, exc, traceback)

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost or released; nothing is written or answered after that."""
        return self.lease.lost

    async def drain(self, grace_s: float) -> None:
        """Refuse new tasks, wait `grace_s` for the running ones, then fail those that remain."""
        self.is_draining = True
        await drain(
            self.slots,
            self.terminator,
            self.agents,
            grace_s=grace_s,
            cancel_grace_s=self._settings.cancel_grace_s,
            lost=self.lost,
        )

    @property
    def needed_agents(self) -> frozenset[str]:
        """The agents of the unfinished tasks if no task runs, else an empty set."""
        rows = self.journal.list_unfinished()
        if self.slots.all() or any(row.state not in INTERRUPTED for row in rows):
            return frozenset()
        return frozenset(row.agent for row in rows)

    def release(self) -> None:
        """Release an idle journal to a host that runs the agents of its tasks.

        Later calls raise PeerUnavailableError.
        """
        self.lease.release()

    def close(self) -> None:
        """Close the journal. Another host may take it over if its tasks need other agents."""
        with contextlib.suppress(TrunklineError):
            missing_agents = {
                row.agent for row in self.journal.list_unfinished()
            } - self.agents.keys()
            self.journal.close(for_takeover=bool(missing_agents))

    def _expire(self, task_id: str) -> None:
        """Fail a task whose deadline has passed."""
        slot = self.slots.find(task_id)
        if slot is None:
            row = find_row(self.journal, task_id)
            if row is None or row.is_ended:
                return
            slot = self.slots.reserve(task_id)
        grace_s = self._settings.deadline_grace_s
        self.terminator.terminate(
            slot,
            State.TASK_STATE_FAILED,
            DEADLINE_PASSED,
            grace_s=grace_s,
            error_type=telemetry.TIMEOUT,
        )

    def _on_release(self, slot: TaskSlot) -> None:
        """Handle the release of a slot: its deadline, its open children, its late answers."""
        runtime = slot.runtime
        if runtime is None or runtime.state not in INTERRUPTED:
            self.deadlines.discard(slot.task_id)
        if runtime is not None and runtime.state in TERMINAL and runtime.children.all:
            self._orphans.add(runtime)
        if runtime is None or self.is_draining:
            return
        if runtime.state in INTERRUPTED and runtime.pending_approvals.answers(
            since=runtime.turn + 1
        ):
            self._group.create_task(self.approval_router.resume_answered(slot.task_id))
        if runtime.snapshot.HasField("parent") and runtime.pending_approvals.answers(
            since=runtime.turn
        ):
            self._group.create_task(self.approval_router.notify_parent(slot.task_id))

    async def _resume_answered(self, reserved: Sequence[tuple[TaskRow, TaskSlot | None]]) -> None:
        """Open the next turns of tasks with answers from before the last host stopped."""
        for row, slot in reserved:
            if slot is None:
                await self.approval_router.resume_answered(row.task_id)
                await asyncio.sleep(0)

    def _stop(self) -> None:
        """Stop all tasks and close the journal, because the lease is over."""
        self.is_draining = True
        self._push_configs.outbox.close(self.journal)
        self.deadlines.close()
        for slot in self.slots.all():
            slot.stop()
        self.flush_scheduler.close()
        self.close()

    def find_agent(self, name: str, task_id: str, account: str) -> Agent:
        """Return the agent that a message is for.

        Raises:
            AgentNotFoundError: no such agent.
            PeerUnavailableError, TaskEndedError: the message is for a task of an agent that does
                not run here.
        """
        agent = self.agents.get(name)
        if agent is not None:
            return agent
        if task_id:
            row = get_account_row(self.journal, task_id, account)
            if row.agent == name and row.is_ended:
                raise TaskEndedError(task_id, state_name(row.state))
            if row.agent == name:
                raise agent_absent_error(name)
        raise AgentNotFoundError(name)

    def get_account_row(self, task_id: str, account: str) -> TaskRow:
        """Return the row of a task of the account.

        Raises:
            TaskNotFoundError: no such task of the account.
            PeerUnavailableError: another host has the journal.
        """
        self.lease.check()
        return get_account_row(self.journal, task_id, account)

    async def set_paused(self, task_id: str, account: str, *, is_paused: bool) -> None:
        """Pause or resume a task, whether a turn of it runs or not.

        Raises:
            TaskEndedError: it has ended.
            TaskNotFoundError, PeerUnavailableError: as `get_account_row`.
        """
        while (slot := self.slots.find(task_id)) is not None:
            runtime = slot.runtime
            if runtime is not None and not runtime.is_over:
                await runtime.pause.change(runtime.state, is_paused=is_paused)
                return
            # The turn begins, or has ended.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SLOT_CHECK_S):
                    await slot.released.wait()
        row = self.get_account_row(task_id, account)
        if row.is_ended:
            raise TaskEndedError(task_id, state_name(row.state))
        slot = self.slots.reserve(task_id)
        try:
            runtime = await self._turns.load(task_id)
            await runtime.pause.change(runtime.state, is_paused=is_paused)
        finally:
            self.slots.release(slot)
