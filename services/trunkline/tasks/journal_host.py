"""A host's tasks: submitted, run, read, watched and canceled."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from trunkline.errors import (
    AgentNotFoundError,
    TaskEndedError,
    TrunklineError,
)
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.accounts import find_row, own_row
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.approval_router import AnswerApproval, ApprovalRouter, agent_absent_error
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.emitter import FlushScheduler
from trunkline.tasks.files import JournalFiles, OpenRemote
from trunkline.tasks.journal_lease import JournalLease
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, state_name
from trunkline.tasks.orphaned_children import OrphanedChildren
from trunkline.tasks.outbox import PushConfigs
from trunkline.tasks.recovery import Recovery
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.submit_handler import SubmitHandler
from trunkline.tasks.sweeping import sweep
from trunkline.tasks.termination import CancelChild, TaskTerminator, drain
from trunkline.tasks.turn_factory import TurnFactory

logger = logging.getLogger(__name__)


class JournalHost:
    """Runs the tasks of one journal while this host holds its lease.

    `TaskHost` has one for each journal that it serves, and offers their tasks to callers; this
    class holds what belongs to the journal, and its lifecycle. Tasks that an earlier life of the
    journal left are recovered; see `trunkline.tasks.recovery`. An async context manager.
    """

    def __init__(  # noqa: PLR0913  each is given by name
        self,
        journal: Journal,
        agents: Sequence[Agent],
        *,
        settings: TaskSettings,
        admissions: AdmissionControl,
        push_configs: PushConfigs,
        cancel_child: CancelChild,
        answer_parent: AnswerApproval,
        checkpoint_path: Path | None,
        open_remote: OpenRemote | None,
    ) -> None:
        """The arguments are those of `TaskHost`; `admissions` and `push_configs` are shared."""
        self.journal = journal
        self.agents = {agent.card.name: agent for agent in agents}
        self._settings = settings
        self.lease = JournalLease(journal, self._settings.lease_s, on_lost=self._stop)
        self._push_configs = push_configs
        self.is_draining = False
        """No new tasks are taken, except from tasks that still run."""
        self._group = asyncio.TaskGroup()
        self._admissions = admissions
        self.flush_scheduler = FlushScheduler(
            self._settings.flush_interval_s,
            journal_id=journal.id,
            on_fenced=self.lease.mark_lost,
        )
        self._deadlines = DeadlineTimer(self._expire)
        self.slots = TaskSlots(self._admissions, on_release=self._on_release)
        self.files = JournalFiles(journal, open_remote)
        self._turns = TurnFactory(
            journal, self.flush_scheduler, self._settings, checkpoint_path, self.files
        )
        self.terminator = TaskTerminator(
            self._group, self.slots, load=self._turns.load, cancel_child=cancel_child
        )
        self._orphans = OrphanedChildren(journal, cancel_child)
        self.submit_handler = SubmitHandler(
            journal,
            self._settings,
            runs=self.slots,
            contexts=self._turns,
            admissions=self._admissions,
            deadlines=self._deadlines,
            push_configs=self._push_configs,
            files=self.files,
        )
        self.approval_router = ApprovalRouter(
            journal,
            self.agents,
            runs=self.slots,
            intake=self.submit_handler,
            answer_parent=answer_parent,
        )
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        recovery = Recovery(
            self.journal,
            self.agents,
            self._settings,
            runs=self.slots,
            endings=self.terminator,
            deadlines=self._deadlines,
            turns=self._turns,
        )
        found = recovery.reserve()
        self._push_configs.outbox.open(self.journal)
        await self._group.__aenter__()
        self._keepers = [
            self._group.create_task(self.lease.renew_until_lost()),
            self._group.create_task(recovery.recover(found)),
            self._group.create_task(self._resume_answered(found)),
            self._group.create_task(self._orphans.run()),
            self._group.create_task(sweep(self.files, self.slots)),
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
        self._deadlines.close()
        # Writes that the journal has not taken yet fail.
        self.flush_scheduler.close()
        for keeper in self._keepers:
            keeper.cancel()
        for run in self.slots.all():
            if run.termination is not None:
                run.termination.cancel()
        await self._group.__aexit__(exc_type, exc, traceback)

    @property
    def lost(self) -> asyncio.Event:
        """Set when another host has the journal: nothing is written or answered any more."""
        return self.lease.lost

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, give what runs `grace_s` to end, and then fail what is left."""
        self.is_draining = True
        await drain(
            self.slots,
            self.terminator,
            grace_s=grace_s,
            cancel_grace_s=self._settings.cancel_grace_s,
            lost=self.lost,
        )

    @property
    def waits_for(self) -> frozenset[str]:
        """The agents of its unfinished tasks, if all of those wait and nothing is done to any."""
        rows = self.journal.list_unfinished()
        if self.slots.all() or any(row.state not in INTERRUPTED for row in rows):
            return frozenset()
        return frozenset(row.agent for row in rows)

    def release(self) -> None:
        """Release the journal, whose tasks all wait, to a host that runs their agents.

        Readers and callers get an error that says so.
        """
        self.lease.release()

    def close(self) -> None:
        """Close the journal; if it has tasks of other agents, another host may take it over."""
        with contextlib.suppress(TrunklineError):
            lacking = {row.agent for row in self.journal.list_unfinished()} - self.agents.keys()
            self.journal.close(for_takeover=bool(lacking))

    def _expire(self, task_id: str) -> None:
        """End a task whose deadline has passed, in any state."""
        run = self.slots.find(task_id)
        if run is None:
            row = find_row(self.journal, task_id)
            if row is None or row.is_ended:
                return
            run = self.slots.reserve(task_id)
        grace_s = self._settings.deadline_grace_s
        self.terminator.terminate(run, State.TASK_STATE_FAILED, DEADLINE_PASSED, grace_s=grace_s)

    def _on_release(self, run: TaskSlot) -> None:
        """A task that waits keeps its deadline; one that has ended minds its children."""
        context = run.context
        if context is None or context.state not in INTERRUPTED:
            self._deadlines.discard(run.task_id)
        if context is not None and context.state in TERMINAL and context.children.all:
            self._orphans.add(context)
        if context is None or self.is_draining:
            return
        if context.state in INTERRUPTED and context.pending_approvals.answers(
            since=context.turn + 1
        ):
            self._group.create_task(self.approval_router.resume_answered(run.task_id))
        if context.snapshot.HasField("parent") and context.pending_approvals.answers(
            since=context.turn
        ):
            self._group.create_task(self.approval_router.notify_parent(run.task_id))

    async def _resume_answered(self, found: Sequence[tuple[TaskRow, TaskSlot | None]]) -> None:
        """Open the turns that the host's death came in front of: their answers are journaled."""
        for row, run in found:
            if run is None:
                await self.approval_router.resume_answered(row.task_id)
                await asyncio.sleep(0)

    def _stop(self) -> None:
        """Stop everything, because another host has the journal; closing it tells readers."""
        self.is_draining = True
        self._push_configs.outbox.close(self.journal)
        self._deadlines.close()
        for run in self.slots.all():
            run.stop()
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
            row = own_row(self.journal, task_id, account)
            if row.agent == name and row.is_ended:
                raise TaskEndedError(task_id, state_name(row.state))
            if row.agent == name:
                raise agent_absent_error(name)
        raise AgentNotFoundError(name)

    def own_row(self, task_id: str, account: str) -> TaskRow:
        """Return the row of a task of the account.

        Raises:
            TaskNotFoundError: no such task of the account.
            PeerUnavailableError: another host has the journal.
        """
        self.lease.check()
        return own_row(self.journal, task_id, account)
