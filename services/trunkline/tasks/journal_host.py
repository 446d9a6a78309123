"""A host's tasks: submitted, run, read, watched and canceled."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from trunkline.artifacts import BlobStore
from trunkline.errors import (
    AgentNotFoundError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.identity import ANONYMOUS_ACCOUNT
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
from trunkline.tasks.outbox import Outbox, PushConfigs
from trunkline.tasks.recovery import Recovery
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.submission import SubmitResult, check_alias, check_message
from trunkline.tasks.submit_handler import SubmitHandler
from trunkline.tasks.sweeping import sweep
from trunkline.tasks.termination import CancelChild, TaskTerminator, drain
from trunkline.tasks.turn_factory import TurnFactory
from trunkline.tasks.watch import TaskWatch, check_cursor
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2, task_service_pb2

__all__ = ["CancelChild", "JournalHost"]

logger = logging.getLogger(__name__)


class JournalHost:
    """Runs the tasks of some agents on one journal. An async context manager: tasks live inside.

    What is accepted is run to an end or to a question, whether or not the caller is still there.
    What an earlier life of the journal left is taken up; see `trunkline.tasks.recovery`.
    """

    def __init__(  # noqa: PLR0913  what it works with, each by name
        self,
        journal: Journal,
        agents: Sequence[Agent],
        *,
        settings: TaskSettings | None = None,
        cancel_child: CancelChild | None = None,
        admissions: AdmissionControl | None = None,
        push_configs: PushConfigs | None = None,
        checkpoint_path: Path | None = None,
        open_remote: OpenRemote | None = None,
        answer_parent: AnswerApproval | None = None,
    ) -> None:
        """`cancel_child` is how descendants on this and other hosts are canceled.

        `answer_parent` is how the tasks that called those here are given answers to approvals;
        `admissions` and `push_configs` are those of the process, if it has more than one host;
        `checkpoint_path` is where agents keep what they go on from, and lies beside the journal;
        `open_elsewhere` reads what parts refer to that is not beside this journal.
        """
        self.journal = journal
        self.agents = {agent.card.name: agent for agent in agents}
        self._settings = settings or TaskSettings()
        self._holding = JournalLease(journal, self._settings.lease_s, on_lost=self._stop)
        self.push_configs = push_configs or PushConfigs(Outbox(self._settings.webhook_retry))
        """The webhooks of its tasks, and with them the outbox."""
        self._is_draining = False
        self._group = asyncio.TaskGroup()
        self._admissions = admissions or AdmissionControl(agents, self._settings)
        self._flushing = FlushScheduler(
            self._settings.flush_interval_s,
            journal_id=journal.id,
            on_fenced=self._holding.mark_lost,
        )
        self._deadlines = DeadlineTimer(self._expire)
        self._runs = TaskSlots(self._admissions, on_release=self._on_release)
        self._files = JournalFiles(journal, open_remote)
        self._contexts = TurnFactory(
            journal, self._flushing, self._settings, checkpoint_path, self._files
        )
        self._endings = TaskTerminator(
            self._group, self._runs, load=self._contexts.load, cancel_child=cancel_child
        )
        self._strays = OrphanedChildren(journal, cancel_child)
        self._intake = SubmitHandler(
            journal,
            self._settings,
            runs=self._runs,
            contexts=self._contexts,
            admissions=self._admissions,
            deadlines=self._deadlines,
            push_configs=self.push_configs,
            files=self._files,
        )
        self._answering = ApprovalRouter(
            journal,
            self.agents,
            runs=self._runs,
            intake=self._intake,
            answer_parent=answer_parent,
        )
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        recovery = Recovery(
            self.journal,
            self.agents,
            self._settings,
            runs=self._runs,
            endings=self._endings,
            deadlines=self._deadlines,
            turns=self._contexts,
        )
        found = recovery.reserve()
        self.push_configs.outbox.open(self.journal)
        await self._group.__aenter__()
        self._keepers = [
            self._group.create_task(self._holding.renew_until_lost()),
            self._group.create_task(recovery.recover(found)),
            self._group.create_task(self._go_on_with_answers(found)),
            self._group.create_task(self._strays.run()),
            self._group.create_task(sweep(self._files, self._runs)),
        ]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drain(0)
        self.push_configs.outbox.close(self.journal)
        self._deadlines.close()
        # What the journal doesn't take now is told that it never will.
        self._flushing.close()
        for keeper in self._keepers:
            keeper.cancel()
        for run in self._runs.all():
            if run.termination is not None:
                run.termination.cancel()
        await self._group.__aexit__(exc_type, exc, traceback)

    @property
    def lost(self) -> asyncio.Event:
        """Set when the journal is somebody else's: nothing is written or answered any more."""
        return self._holding.lost

    async def submit(
        self,
        agent_name: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult | message_pb2.Message:
        """Take a message: for a new task, for the next turn of one, or for a direct reply.

        Returns when the task (or the reply) exists. Repeating a submission that names its task, or
        is idempotent, gives the task that it made. What is taken is taken, also when the caller
        leaves before this returns.

        Raises:
            AgentNotFoundError, TaskNotFoundError, InvalidArgumentError,
            ContentTypeNotSupportedError, MessageKeyReusedError, TaskEndedError,
            UnsupportedOperationError, OverloadedError, PeerUnavailableError, PeerTimeoutError.
            JournalUnavailableError: nothing can be journaled now.
        """
        self._holding.check()
        if self._is_draining and not submission.HasField("parent"):
            # A task that may still finish may also still call its children.
            raise PeerUnavailableError("this host", "it is shutting down; try again elsewhere")
        agent = self._find_agent(agent_name, message.task_id, submission.account)
        check_message(agent.card, message)
        trouble = self._flushing.error
        if trouble is not None:
            raise JournalUnavailableError(trouble.path, trouble.problem)
        if message.task_id:
            return await self._intake.continue_task(agent, message, submission)
        return await self._intake.create_task(agent, message, submission)

    async def snapshot(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task of the account. TaskNotFoundError."""
        self._own_row(task_id, account)
        return await self.journal.snapshot(task_id)

    def list(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """List tasks of the account, newest status first. InvalidArgumentError."""
        self._holding.check()
        query = task_service_pb2.ListTasksRequest()
        query.CopyFrom(request)
        query.account = request.account or ANONYMOUS_ACCOUNT
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

    def blobs(self, task_id: str, *, account: str) -> BlobStore:
        """Return where the content of a task of the account lies that is too big for events.

        Raises:
            TaskNotFoundError: no such task of the account.
            UnsupportedOperationError: the journal keeps no files.
        """
        self._own_row(task_id, account)
        return self._files.local

    async def set_alias(self, account: str, alias: str, task_id: str, *, replaces: str) -> str:
        """Let an id that a client chose stand for a task, which may not exist yet.

        It stays with a task that it stands for already, unless that is `replaces`. Returns the id
        of the task that it stands for now.

        Raises:
            InvalidArgumentError: the alias or the task's id is empty, or the alias too long.
            JournalUnavailableError, PeerUnavailableError.
        """
        self._holding.check()
        check_alias(alias, task_id)
        bound = self.journal.aliases.bind(
            account or ANONYMOUS_ACCOUNT, alias, task_id, replaces=replaces
        )
        return await asyncio.shield(bound)

    def resolve_alias(self, account: str, alias: str) -> str:
        """Return the id of the task that an alias stands for; there may be no such task yet.

        Raises:
            TaskNotFoundError: it stands for none.
            JournalUnavailableError, PeerUnavailableError.
        """
        self._holding.check()
        task_id = self.journal.aliases.find(account or ANONYMOUS_ACCOUNT, alias)
        if task_id is None:
            raise TaskNotFoundError(alias)
        return task_id

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
        The cancel goes on when the caller leaves before this returns.

        Raises:
            TaskNotFoundError: no such task of the account.
            TaskNotCancelableError: it has ended, or ended before the cancel took hold.
            PeerUnavailableError: the host has lost the task, or is going away.
        """
        row = self._own_row(task_id, account)
        run = self._runs.find(task_id)
        if run is None:
            if row.is_ended:
                raise TaskNotCancelableError(task_id, state_name(row.state))
            run = self._runs.reserve(task_id)
        grace_s = self._settings.cancel_grace_s
        ending = self._endings.terminate(run, State.TASK_STATE_CANCELED, reason, grace_s=grace_s)
        if ending is not None:
            await asyncio.wait([ending])
        elif run.context is not None:
            await run.context.flush()
        state = self._own_row(task_id, account).state
        if state not in TERMINAL:
            raise PeerUnavailableError("this host", "it can't end the task now; try again")
        if state != State.TASK_STATE_CANCELED:
            raise TaskNotCancelableError(task_id, state_name(state))
        return await self.journal.snapshot(task_id)

    async def answer_approval(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task of the account, or a descendant, asks for.

        Returns when the answer is journaled at the root, whose next turn gives it to whoever asked.

        Raises:
            TaskNotFoundError, InvalidArgumentError, ApprovalNotFoundError, ApprovalAnsweredError,
            TaskEndedError, PeerUnavailableError, JournalUnavailableError.
        """
        self._holding.check()
        return await self._answering.answer(request)

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, give what runs `grace_s` to end, and then fail what is left."""
        self._is_draining = True
        await drain(
            self._runs,
            self._endings,
            grace_s=grace_s,
            cancel_grace_s=self._settings.cancel_grace_s,
            lost=self.lost,
        )

    @property
    def waits_for(self) -> frozenset[str]:
        """The agents of its unfinished tasks, if all of those wait and nothing is done to any."""
        rows = self.journal.list_unfinished()
        if self._runs.all() or any(row.state not in INTERRUPTED for row in rows):
            return frozenset()
        return frozenset(row.agent for row in rows)

    def release(self) -> None:
        """Leave the journal to a host that can go on with its tasks, all of which wait.

        Whoever still reads or asks is told to look for it elsewhere.
        """
        self._holding.release()

    def close(self) -> None:
        """Close the journal; tasks of agents that aren't here are for whoever takes it over."""
        with contextlib.suppress(TrunklineError):
            lacking = {row.agent for row in self.journal.list_unfinished()} - self.agents.keys()
            self.journal.close(for_takeover=bool(lacking))

    def _expire(self, task_id: str) -> None:
        """End a task whose deadline has passed, whatever it does or waits for."""
        run = self._runs.find(task_id)
        if run is None:
            row = find_row(self.journal, task_id)
            if row is None or row.is_ended:
                return
            run = self._runs.reserve(task_id)
        grace_s = self._settings.deadline_grace_s
        self._endings.terminate(run, State.TASK_STATE_FAILED, DEADLINE_PASSED, grace_s=grace_s)

    def _on_release(self, run: TaskSlot) -> None:
        """A task that waits keeps its deadline; one that has ended minds its children."""
        context = run.context
        if context is None or context.state not in INTERRUPTED:
            self._deadlines.discard(run.task_id)
        if context is not None and context.state in TERMINAL and context.children.all:
            self._strays.add(context)
        if context is None or self._is_draining:
            return
        if context.state in INTERRUPTED and context.pending_approvals.answers(
            since=context.turn + 1
        ):
            self._group.create_task(self._answering.resume_answered(run.task_id))
        if context.snapshot.HasField("parent") and context.pending_approvals.answers(
            since=context.turn
        ):
            self._group.create_task(self._answering.notify_parent(run.task_id))

    async def _go_on_with_answers(self, found: Sequence[tuple[TaskRow, TaskSlot | None]]) -> None:
        """Open the turns that the host's death came in front of: their answers are journaled."""
        for row, run in found:
            if run is None:
                await self._answering.resume_answered(row.task_id)
                await asyncio.sleep(0)

    def _stop(self) -> None:
        """Stop everything: the journal is somebody else's. Readers are told by its closing."""
        self._is_draining = True
        self.push_configs.outbox.close(self.journal)
        self._deadlines.close()
        for run in self._runs.all():
            run.stop()
        self._flushing.close()
        self.close()

    def _find_agent(self, name: str, task_id: str, account: str) -> Agent:
        """Return the agent that a message is for; an answer may have come where it isn't."""
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

    def _own_row(self, task_id: str, account: str) -> TaskRow:
        self._holding.check()
        return own_row(self.journal, task_id, account)
