"""All the journals that one process serves: its own, and those of hosts that died."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from trunkline.artifacts import BlobStore
from trunkline.errors import (
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.journal import Journal
from trunkline.journal.listing import merge_pages, parse_page_size
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.approval_router import AnswerApproval
from trunkline.tasks.files import OpenRemote
from trunkline.tasks.journal_host import JournalHost
from trunkline.tasks.journal_lease import journal_moved_error
from trunkline.tasks.outbox import Outbox, PushConfigs
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.termination import CancelChild
from trunkline.tasks.watch import TaskWatch
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2, task_service_pb2

logger = logging.getLogger(__name__)


class TaskHost:
    """Runs the tasks of some agents on a primary journal and on those that it adopts.

    It has the surface of a `TaskHost`, and raises what that does. What is said of a task goes to
    the journal that the task's id begins with; new tasks go to the primary one. The limits of the
    agents hold for all journals together. An async context manager.
    """

    def __init__(  # noqa: PLR0913  what it works with, each by name
        self,
        journal: Journal,
        agents: Sequence[Agent],
        *,
        settings: TaskSettings | None = None,
        cancel_child: CancelChild | None = None,
        checkpoint_path: Path | None = None,
        open_remote: OpenRemote | None = None,
        answer_parent: AnswerApproval | None = None,
    ) -> None:
        """`cancel_child` is how descendants on other hosts are canceled; see `TaskHost`.

        `answer_parent` is how parents there are given answers to approvals;
        `open_elsewhere` reads what parts refer to that is not beside their task's journal.
        """
        self._agents = tuple(agents)
        self._settings = settings or TaskSettings()
        self._cancel_elsewhere = cancel_child
        self._open_elsewhere = open_remote
        self._answer_elsewhere = answer_parent
        self._admissions = AdmissionControl(agents, self._settings)
        self.push_configs = PushConfigs(Outbox(self._settings.webhook_retry))
        """The webhooks of the tasks in all journals, and with them the outbox."""
        self._group = asyncio.TaskGroup()
        self._leaving = asyncio.Event()
        self._is_draining = False
        self.primary = self._host(journal, checkpoint_path)
        self._hosts = {journal.id: self.primary}
        self._withdrawn: set[str] = set()
        # The ids of journals that were served here.
        self._left: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await self.primary.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drain(0)
        self._leaving.set()
        await self.primary.__aexit__(exc_type, exc, traceback)
        await self._group.__aexit__(exc_type, exc, traceback)

    @property
    def agents(self) -> dict[str, Agent]:
        """The agents by name."""
        return self.primary.agents

    @property
    def journal(self) -> Journal:
        """The primary journal."""
        return self.primary.journal

    @property
    def journal_ids(self) -> tuple[str, ...]:
        """The ids of all journals served now, the primary first, but for those withdrawn."""
        return tuple(one for one in self._hosts if one not in self._withdrawn)

    @property
    def lost(self) -> asyncio.Event:
        """Set when somebody else has taken the primary journal."""
        return self.primary.lost

    @property
    def active_turns(self) -> int:
        """How many turns run or wait now, on all journals."""
        return self._admissions.active_turns

    async def adopt(self, journal: Journal, *, checkpoint_path: Path | None = None) -> None:
        """Serve another journal, and take up the tasks that its host left.

        The journal is closed with this, or when somebody else takes it in turn. Returns as soon
        as its tasks can be read.

        Raises:
            JournalUnavailableError: they can't be; it is closed, and for others to take over.
        """
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group.create_task(self._serve(journal, checkpoint_path, served))
        await asyncio.shield(served)

    def journals_missing_agents(self) -> dict[str, frozenset[str]]:
        """Return adopted journals whose tasks all wait, some of them for agents that aren't here.

        With the agents of all their unfinished tasks.
        """
        found = {
            journal_id: host.waits_for
            for journal_id, host in self._hosts.items()
            if host is not self.primary
        }
        return {one: agents for one, agents in found.items() if agents - self.agents.keys()}

    @contextmanager
    def hide_journal(self, journal_id: str) -> Iterator[None]:
        """Leave a journal out of `journal_ids` for the length of a block; it is served on."""
        self._withdrawn.add(journal_id)
        try:
            yield
        finally:
            self._withdrawn.discard(journal_id)

    def release_journal(self, journal_id: str) -> None:
        """Leave an adopted journal to a host that can go on with its tasks: it takes it over."""
        self._hosts[journal_id].release()
        self._forget(journal_id)

    async def submit(
        self,
        agent_name: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult | message_pb2.Message:
        """Take a message; one that names a task goes to that task's journal."""
        named = message.task_id or submission.task_id
        journal_id = named.partition("-")[0]
        if message.task_id or journal_id in self._left:
            host = self._host_of(named)
        else:
            host = self._hosts.get(journal_id, self.primary)
        return await host.submit(agent_name, message, submission)

    async def snapshot(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task of the account."""
        return await self._host_of(task_id).snapshot(task_id, account=account)

    def list(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """List tasks of the account in all journals, newest status first."""
        pages = [host.list(request) for host in self._hosts.values()]
        return pages[0] if len(pages) == 1 else merge_pages(pages, parse_page_size(request))

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
        """Read a task's events behind a cursor, or from the head on."""
        return self._host_of(task_id).watch(
            task_id,
            account=account,
            after=after,
            epoch=epoch,
            with_snapshot=with_snapshot,
            until_head=until_head,
            until_turn_ends=until_turn_ends,
        )

    def blobs(self, task_id: str, *, account: str) -> BlobStore:
        """Return where the content of a task of the account lies that is too big for events."""
        return self._host_of(task_id).blobs(task_id, account=account)

    async def set_alias(self, account: str, alias: str, task_id: str, *, replaces: str) -> str:
        """Let an alias stand for a task: in the journal that knows it, else in the task's own."""
        host = self._host_that_knows(account, alias) or self._host_of(task_id)
        return await host.set_alias(account, alias, task_id, replaces=replaces)

    def resolve_alias(self, account: str, alias: str) -> str:
        """Return the id of the task that an alias stands for."""
        host = self._host_that_knows(account, alias) or self.primary
        return host.resolve_alias(account, alias)

    async def wait_turn(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Wait until the task has ended or is interrupted, and return its fold."""
        return await self._host_of(task_id).wait_turn(task_id)

    async def cancel(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Stop a task and its descendants; return it, ended."""
        return await self._host_of(task_id).cancel(task_id, account=account, reason=reason)

    async def answer_approval(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task of the account, or a descendant, asks for."""
        return await self._host_of(request.task_id).answer_approval(request)

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, give what runs `grace_s` to end, and then fail what is left."""
        self._is_draining = True
        self.push_configs.outbox.drain()
        async with asyncio.TaskGroup() as group:
            for host in self._hosts.values():
                group.create_task(host.drain(grace_s))

    def _host(self, journal: Journal, checkpoint_path: Path | None) -> JournalHost:
        return JournalHost(
            journal,
            self._agents,
            settings=self._settings,
            cancel_child=self._cancel_child,
            admissions=self._admissions,
            push_configs=self.push_configs,
            checkpoint_path=checkpoint_path,
            open_remote=self._open_elsewhere,
            answer_parent=self._answer_parent,
        )

    def _host_of(self, task_id: str) -> JournalHost:
        journal_id = task_id.partition("-")[0]
        host = self._hosts.get(journal_id)
        if host is not None:
            return host
        if journal_id in self._left:
            raise journal_moved_error()
        raise TaskNotFoundError(task_id)

    def _host_that_knows(self, account: str, alias: str) -> JournalHost | None:
        for host in self._hosts.values():
            with suppress(TaskNotFoundError):
                host.resolve_alias(account, alias)
                return host
        return None

    async def _serve(
        self, journal: Journal, checkpoint_path: Path | None, served: asyncio.Future[None]
    ) -> None:
        """Serve an adopted journal until this ends, or somebody else has it."""
        host = self._host(journal, checkpoint_path)
        try:
            async with host:
                self._hosts[journal.id] = host
                self._left.discard(journal.id)
                served.set_result(None)
                if self._is_draining:
                    await host.drain(0)
                await _first_of(self._leaving, host.lost)
                if host.lost.is_set() and self._hosts.get(journal.id) is host:
                    self._forget(journal.id)
        except JournalUnavailableError as error:
            if served.done():
                raise
            # One damaged file must not end all that is served beside it.
            with suppress(TrunklineError):
                journal.close(for_takeover=True)
            served.set_exception(error)
        finally:
            served.cancel()
            host.close()

    def _forget(self, journal_id: str) -> None:
        del self._hosts[journal_id]
        self._left.add(journal_id)

    async def _cancel_child(self, task_id: str, account: str) -> None:
        """Cancel a descendant: here without a call, if it is here."""
        host = self._hosts.get(task_id.partition("-")[0])
        if host is not None:
            await host.cancel(task_id, account=account, reason="its parent was canceled")
        elif self._cancel_elsewhere is not None:
            await self._cancel_elsewhere(task_id, account)

    async def _answer_parent(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval of a task's parent: here without a call, if it is here."""
        host = self._hosts.get(request.task_id.partition("-")[0])
        if host is not None:
            return await host.answer_approval(request)
        if self._answer_elsewhere is None:
            raise PeerUnavailableError(request.task_id, "its host is not on the mesh")
        return await self._answer_elsewhere(request)


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
