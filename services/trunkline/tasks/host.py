"""The tasks of the agents of a process, in its own journal and in adopted journals."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from trunkline.conversations.memory import AgentMemory
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.settings import Settings
from trunkline.errors import (
    JournalUnavailableError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from trunkline.journal.artifacts import BlobStore
from trunkline.journal.events import parse_journal_id
from trunkline.journal.journal import Journal
from trunkline.journal.listing import merge_pages, parse_page_size
from trunkline.journal.measurements import begin_commit_counts
from trunkline.journal.store import JournalReader
from trunkline.journal.stored_tasks import StoredTasks
from trunkline.observe.audit import Action, AuditLog, process_actor
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.approvals import render_decision
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.change_watchers import ChangedTasks, TaskChanges
from trunkline.tasks.delivered_messages import (
    DeliveryResult,
    build_request,
)
from trunkline.tasks.journal_host import JournalHost
from trunkline.tasks.lifecycle import TERMINAL, State, state_name
from trunkline.tasks.loop_watch import LoopWatch
from trunkline.tasks.outbox import Outbox, PushConfigs, RetryPolicy
from trunkline.tasks.resources import HostResources, OtherHosts
from trunkline.tasks.served_journals import ServedJournals
from trunkline.tasks.submission import (
    SubmitResult,
    check_alias,
    check_message,
)
from trunkline.tasks.task_rows import read_first_text, wait_for_turn_end
from trunkline.tasks.watch import TaskWatch, check_cursor
from trunkline.v1 import (
    envelope_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

logger = logging.getLogger(__name__)


class TaskHost:
    """Serves the tasks of a process's agents. An async context manager.

    New tasks are written to the primary journal; `journals` may adopt the journals of failed hosts.
    The concurrency limits of the agents hold for all journals together.
    """

    def __init__(  # noqa: PLR0913  independent options
        self,
        journal: Journal,
        agents: Sequence[Agent],
        *,
        settings: Settings | None = None,
        others: OtherHosts | None = None,
        memory: AgentMemory | None = None,
        audit: AuditLog | None = None,
        budgets: Budgets | None = None,
        reader: JournalReader | None = None,
    ) -> None:
        """Prepare to serve the primary journal.

        `others` are the ways to tasks and files of other hosts.
        `memory` is what the agents of the primary journal remember; by default it is as short-lived
        as the process.
        Messages that answer approvals are recorded in `audit`.
        With `budgets`, turns are refused and models are not called once a budget is used up.
        With `reader`, the tasks of all journals in the store are read, also of hosts that are gone.
        """
        self._audit = audit
        self._settings = settings = settings or Settings()
        self._others = others or OtherHosts()
        self._admissions = AdmissionControl(agents, settings)
        begin_commit_counts(agent.card.name for agent in agents)
        self._changes = TaskChanges()
        stored = None if reader is None else StoredTasks(reader, poll_s=settings.lease_s / 4)
        retry = RetryPolicy(give_up_s=settings.webhook_give_up_s)
        self.push_configs: PushConfigs = PushConfigs(Outbox(retry, stored))
        """The webhooks of the tasks in all journals, and their outbox."""
        self._watch = LoopWatch()
        self._resources = HostResources(
            agents={agent.card.name: agent for agent in agents},
            settings=settings,
            admissions=self._admissions,
            watch=self._watch,
            push_configs=self.push_configs,
            budgets=budgets,
            others=OtherHosts(self._cancel_child, self._answer_parent, self._others.open_content),
        )
        self.journals: ServedJournals = ServedJournals(
            journal, self._resources, self._changes, memory=memory, stored=stored
        )
        """The journals that are served here."""

    async def __aenter__(self) -> Self:
        self._watch.open()
        await self.journals.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.drain(0)
            await self.journals.__aexit__(exc_type, exc, traceback)
        finally:
            self._watch.close()

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents by name."""
        return self._resources.agents

    @property
    def journal(self) -> Journal:
        """The primary journal."""
        return self.journals.primary.journal

    @property
    def open_turns(self) -> int:
        """The number of turns that were accepted and have not ended."""
        return self._admissions.open_turns

    @property
    def lost(self) -> asyncio.Event:
        """Set when another host has taken the primary journal."""
        return self.journals.primary.lost

    async def submit(
        self,
        agent_name: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        *,
        is_held: bool = False,
    ) -> SubmitResult | message_pb2.Message:
        """Submit a message, which creates a task, opens a task's next turn, or gets a direct reply.

        Returns when the task or the reply exists. Repeating a submission that names its task, or
        is idempotent, returns the existing task. The task runs even if the call is canceled.
        A message that names a task goes to that task's journal.

        The code of a new task begins after this call returns. With `is_held` it waits, for a
        limited time, until the caller has sent the response and calls `SubmitResult.start`.

        Raises:
            AgentNotFoundError: the agent does not run here.
            TaskNotFoundError: the account has no task of this id and agent.
            TaskEndedError: the task has ended.
            UnsupportedOperationError: the task does not wait for a message.
            InvalidArgumentError, ContentTypeNotSupportedError: the message is not valid.
            MessageKeyReusedError: the idempotency key belongs to another message.
            ApprovalNotFoundError, ApprovalAnsweredError: its answer to an approval is not valid.
            OverloadedError: the agent or the host has too many turns.
            LimitExceededError: the account has too many tasks, or a budget is used up.
            PeerUnavailableError: the host is shutting down, or has lost the journal.
            PeerTimeoutError: the deadline passed before the task existed.
            JournalUnavailableError: the journal can't be written.
        """
        host = await self.journals.get_writable(message, submission)
        agent = self.agents.get(agent_name)
        if agent is None:
            raise await host.build_absence_error(agent_name, message.task_id, submission.account)
        check_message(agent.card, message)
        if message.task_id:
            continued = await host.submit_handler.continue_task(agent, message, submission)
            self._record_answers(continued, agent.card.name, submission)
            return continued
        result = await host.submit_handler.create_task(agent, message, submission)
        if not is_held and isinstance(result, SubmitResult):
            result.start()
        return result

    async def deliver(
        self,
        agent_name: str,
        envelope: envelope_pb2.Envelope,
        submission: message_service_pb2.Submission,
    ) -> asyncio.Future[DeliveryResult]:
        """Deliver a message between agents as a task; the future has the result of its turn.

        The submission names the task. Repeating a delivery attaches to its task. A task whose turn
        ends before it writes anything is written at its end, in one commit.

        Raises:
            AgentNotFoundError, OverloadedError, LimitExceededError, PeerUnavailableError,
            JournalUnavailableError: as `submit`; the future has the last two as well.
        """
        message = build_request(envelope, task_id=submission.task_id)
        host = await self.journals.get_writable(message, submission)
        return await host.deliveries.deliver(agent_name, envelope, message, submission)

    def _record_answers(
        self, result: SubmitResult, agent: str, submission: message_service_pb2.Submission
    ) -> None:
        """Record the approvals that a message answered, unless a parent passed the answers on."""
        if self._audit is None or submission.HasField("parent"):
            return
        actor = process_actor(account=submission.account or ANONYMOUS_ACCOUNT)
        if not actor.user:
            actor = replace(actor, user=submission.caller)
        for answer in result.answers:
            self._audit.record(
                Action.APPROVAL_ANSWER,
                actor,
                decision=render_decision(answer.decision),
                approval=answer.approval_id,
                task=result.task_id,
                agent=agent,
            )

    async def snapshot(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the snapshot of a task.

        Raises:
            TaskNotFoundError: the account has no such task.
            PeerUnavailableError: another host has the journal.
            JournalUnavailableError: the journal can't be read.
        """
        reader, _ = await self.journals.get_reader(task_id, account)
        return await reader.snapshot(task_id)

    async def list(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """List tasks of the account in all journals that are served here, newest status first.

        With `whole_store`, list those in all journals of the store, if hosts share it.

        Raises:
            InvalidArgumentError: the page size or the token is wrong.
            PeerUnavailableError: another host has the journal.
        """
        query = task_service_pb2.ListTasksRequest()
        query.CopyFrom(request)
        query.account = request.account or ANONYMOUS_ACCOUNT
        if request.whole_store and self.journals.stored is not None:
            page = await self.journals.stored.list(query)
        else:
            pages = []
            for host in tuple(self.journals.hosts.values()):
                host.lease.check()
                pages.append(await host.journal.list(query))
            page = pages[0] if len(pages) == 1 else merge_pages(pages, parse_page_size(query))
        if query.with_text:
            for summary in page.tasks:
                await self.read_text(summary)
        return page

    def watch_changes(self, account: str) -> AbstractContextManager[ChangedTasks]:
        """Watch the tasks of an account that are created, or whose state changes, in a block."""
        return self._changes.watch(account or ANONYMOUS_ACCOUNT)

    async def read_text(self, summary: snapshot_pb2.TaskSummary) -> None:
        """Fill in the text of a task's first message. It stays empty if the task is gone."""
        host = self.journals.hosts.get(parse_journal_id(summary.task_id))
        reader = self.journals.stored if host is None else host.journal
        if reader is not None:
            with suppress(TaskNotFoundError, JournalUnavailableError):
                summary.text = await read_first_text(reader, summary.task_id)

    async def watch(  # noqa: PLR0913  independent options
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
        """Watch a task's events after a cursor, by default its head; see `TaskWatch`.

        `epoch` is the journal's epoch in which the cursor was read, 0 if it is unknown.

        Raises:
            TaskNotFoundError: the account has no such task.
            InvalidArgumentError: the cursor is past the task's last event.
            CursorExpiredError: events after the cursor are past retention, or were lost.
            PeerUnavailableError: another host has the journal.
        """
        reader, row = await self.journals.get_reader(task_id, account)
        if after is not None:
            await check_cursor(reader, task_id, after, epoch)
        return TaskWatch(
            reader,
            task_id,
            after=row.head if after is None else after,
            with_snapshot=with_snapshot,
            until_head=until_head,
            until_turn_ends=until_turn_ends,
        )

    async def blobs(self, task_id: str, *, account: str) -> BlobStore:
        """Return the store with the files of a task.

        If its journal is not here, files can only be read; see `ServedJournals.acquire`.

        Raises:
            TaskNotFoundError: the account has no such task.
            PeerUnavailableError: another host has the journal.
            UnsupportedOperationError: the journal stores no files.
        """
        await self.journals.get_reader(task_id, account)
        journal_id = parse_journal_id(task_id)
        # A store that hosts share reads the files of all journals.
        return self.journals.hosts.get(journal_id, self.journals.primary).files.local

    async def set_alias(self, account: str, alias: str, task_id: str, *, replaces: str) -> str:
        """Bind an id that a client chose to a task, which may not exist yet.

        An alias that is already bound keeps its task, unless that task is `replaces`. In files, it
        is written to the journal that has it, or else to the task's journal. A database has it
        once, whichever host writes it. Returns the id of the task that the alias is bound to
        afterwards.

        Raises:
            InvalidArgumentError: the alias or the task's id is empty, or the alias is too long.
            TaskNotFoundError: the task's journal was never served here.
            PeerUnavailableError: another host has a journal.
            JournalUnavailableError: a journal can't be read or written.
        """
        check_alias(alias, task_id)
        account = account or ANONYMOUS_ACCOUNT
        if self.journals.stored is None:
            host = await self._find_alias_host(account, alias) or self.journals.get(task_id)
        else:
            served = self.journals.hosts
            host = served.get(parse_journal_id(task_id), self.journals.primary)
        host.lease.check()
        bound = host.journal.aliases.bind(account, alias, task_id, replaces=replaces)
        return await asyncio.shield(bound)

    async def resolve_alias(self, account: str, alias: str) -> str:
        """Return the id of the task that an alias is bound to, or "" if it is not bound.

        The task may not exist yet.

        Raises:
            PeerUnavailableError: another host has a journal.
            JournalUnavailableError: a journal can't be read.
        """
        account = account or ANONYMOUS_ACCOUNT
        if (stored := self.journals.stored) is not None:
            return await stored.find_alias(account, alias) or ""
        for host in tuple(self.journals.hosts.values()):
            host.lease.check()
            task_id = await host.journal.aliases.find(account, alias)
            if task_id is not None:
                return task_id
        return ""

    async def wait_turn(
        self, task_id: str, since: snapshot_pb2.TaskSnapshot | None = None
    ) -> snapshot_pb2.TaskSnapshot:
        """Wait until the task has ended or is interrupted, and return its snapshot.

        `since` is the snapshot of the submission that created the task, if the caller has it.
        """
        return await wait_for_turn_end(self.journals.get(task_id).journal, task_id, since)

    async def cancel(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Cancel a task and its descendants; return its snapshot after the end.

        The agent's writes are refused at once, and its code has `cancel_grace_s` to clean up. The
        cancel continues even if this call is canceled.

        Raises:
            TaskNotFoundError: no such task of the account.
            TaskNotCancelableError: it has ended, or ended before the cancel took effect.
            PeerUnavailableError: the host has lost the task, or is shutting down.
            TaskHostGoneError: as `ServedJournals.acquire`.
        """
        try:
            host = await self.journals.acquire(task_id, account)
        except TaskEndedError as error:
            raise TaskNotCancelableError(task_id, error.state) from None
        await host.executions.stop_creation(task_id, account)
        row = await host.get_account_row(task_id, account)
        execution = host.executions.find(task_id)
        if execution is None:
            if row.is_ended:
                raise TaskNotCancelableError(task_id, state_name(row.state))
            execution = host.executions.reserve(task_id)
        grace_s = self._settings.cancel_grace_s
        state = State.TASK_STATE_CANCELED
        termination = host.terminator.terminate(execution, state, reason, grace_s=grace_s)
        if termination is not None:
            await asyncio.wait([termination])
        elif execution.turn is not None:
            await execution.turn.flush()
        state = (await host.get_account_row(task_id, account)).state
        if state not in TERMINAL:
            raise PeerUnavailableError("this host", "it could not end the task; try again")
        if state != State.TASK_STATE_CANCELED:
            raise TaskNotCancelableError(task_id, state_name(state))
        return await host.journal.snapshot(task_id)

    async def pause(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Begin no further step of a task until it is resumed; return its snapshot.

        Raises:
            TaskNotFoundError: no such task of the account.
            TaskEndedError: it has ended.
            UnsupportedOperationError: its agent can't be paused.
            PeerUnavailableError: the host has lost the task, or its agent does not run here.
            TaskHostGoneError: as `ServedJournals.acquire`.
        """
        return await self._set_paused(task_id, account, is_paused=True)

    async def resume(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Resume a paused task; return its snapshot. Raises as `pause`."""
        return await self._set_paused(task_id, account, is_paused=False)

    async def _set_paused(
        self, task_id: str, account: str, *, is_paused: bool
    ) -> snapshot_pb2.TaskSnapshot:
        host = await self.journals.acquire(task_id, account)
        row = await host.get_account_row(task_id, account)
        agent = self.agents.get(row.agent)
        if agent is None:
            raise await host.build_absence_error(row.agent, task_id, account)
        if not agent.is_pausable:
            problem = "only workflows, which work in steps, can be paused"
            raise UnsupportedOperationError(f"agent {row.agent!r}", problem)
        await host.set_paused(task_id, account, is_paused=is_paused)
        return await host.journal.snapshot(task_id)

    async def answer_approval(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task of the account, or a descendant, has requested.

        Returns when the answer is journaled at the root task, whose next turn passes it on.

        Raises:
            TaskHostGoneError: as `ServedJournals.acquire`.
            As `ApprovalRouter.answer`.
        """
        host = await self.journals.acquire(request.task_id, request.account)
        host.lease.check()
        return await host.approval_router.answer(request)

    async def drain(self, grace_s: float) -> None:
        """Refuse new tasks, wait `grace_s` for running tasks, then fail the remaining tasks."""
        self.push_configs.outbox.drain()
        await self.journals.drain(grace_s)

    async def _find_alias_host(self, account: str, alias: str) -> JournalHost | None:
        """Return the host of the journal that has an alias."""
        for host in tuple(self.journals.hosts.values()):
            host.lease.check()
            if await host.journal.aliases.find(account, alias) is not None:
                return host
        return None

    async def _cancel_child(self, task_id: str, account: str) -> None:
        """Cancel a descendant, directly if this process serves its journal."""
        if parse_journal_id(task_id) in self.journals.hosts:
            await self.cancel(task_id, account=account, reason="its parent was canceled")
        elif self._others.cancel_child is not None:
            await self._others.cancel_child(task_id, account)

    async def _answer_parent(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval of a parent, directly if this process serves its journal."""
        if parse_journal_id(request.task_id) in self.journals.hosts:
            return await self.answer_approval(request)
        if self._others.answer_parent is None:
            raise PeerUnavailableError(request.task_id, "its host is not on the mesh")
        return await self._others.answer_parent(request)
