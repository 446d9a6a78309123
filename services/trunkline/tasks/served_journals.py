"""The journals that a host serves: its own, and the journals of failed hosts that it adopts."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import open_memory_of_process
from trunkline.errors import (
    JournalUnavailableError,
    PeerUnavailableError,
    TaskEndedError,
    TaskHostGoneError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.events import is_allocated_id, parse_journal_id
from trunkline.journal.journal import Journal
from trunkline.journal.store import TaskRow
from trunkline.journal.stored_tasks import StoredTasks
from trunkline.journal.task_reader import TaskReader
from trunkline.tasks.change_watchers import TaskChanges
from trunkline.tasks.journal_host import JournalHost
from trunkline.tasks.journal_lease import journal_moved_error
from trunkline.tasks.lifecycle import state_name
from trunkline.tasks.resources import HostResources
from trunkline.tasks.task_rows import get_account_row
from trunkline.v1 import message_pb2, message_service_pb2


class ServedJournals:
    """The hosts of the journals that a process serves. An async context manager.

    New tasks are written to the primary journal. The id of a task begins with the id of its
    journal.
    """

    def __init__(
        self,
        journal: Journal,
        resources: HostResources,
        changes: TaskChanges,
        *,
        memory: AgentMemory | None = None,
        stored: StoredTasks | None = None,
    ) -> None:
        """`changes` gets the changed rows of all journals. `memory` belongs to the journal.

        With `stored`, tasks of other journals in the store are read as well.
        """
        self.stored: StoredTasks | None = stored
        """The tasks of all journals in the store, if hosts share it."""
        self.take_over: Callable[[str], Awaitable[None]] | None = None
        """Takes over the journal with an id at once, if this host may continue all of its tasks."""
        self._resources = resources
        self._changes = changes
        self._group = asyncio.TaskGroup()
        self._closing = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._is_draining = False
        self._is_leaving = False
        self.primary: JournalHost = self._build_host(journal, memory)
        self.hosts: dict[str, JournalHost] = {journal.id: self.primary}
        """The hosts of all journals that are served here, by journal id."""
        self._hidden: set[str] = set()
        # The ids of journals that were served here before.
        self._former_ids: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        if self.stored is not None:
            self._polling = self._group.create_task(self.stored.run())
        await self.primary.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_draining = True
        self._closing.set()
        if self._polling is not None:
            self._polling.cancel()
        await self.primary.__aexit__(exc_type, exc, traceback)
        if self._is_leaving or self.primary.has_left_tickets:
            await self.primary.close(for_takeover=True)
        await self._group.__aexit__(exc_type, exc, traceback)

    @property
    def store_id(self) -> str:
        """The id of the store whose tasks are all read here, or "" if it is not shared."""
        return "" if self.stored is None else self.stored.store_id

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the served journals except hidden journals, the primary first."""
        return tuple(journal_id for journal_id in self.hosts if journal_id not in self._hidden)

    @property
    def accepts_tasks(self) -> bool:
        """Whether callers should choose this host for new tasks."""
        primary = self.primary
        is_ending = self._is_leaving or self._is_draining or primary.lost.is_set()
        is_written = primary.lease.is_renewed and primary.flush_scheduler.error is None
        return is_written and not is_ending

    def begin_leaving(self) -> None:
        """Note that other hosts continue the tasks of all journals once this host ends.

        New tasks are still accepted, because callers learn of it a little later.
        """
        self._is_leaving = True

    def get(self, task_id: str) -> JournalHost:
        """Return the host of the journal of a task.

        Raises:
            TaskNotFoundError: no journal has such a task.
            PeerUnavailableError: another host has the journal. The caller has not heard yet that it
                was taken over, or that a new process has the address of its former host.
        """
        journal_id = parse_journal_id(task_id)
        host = self.hosts.get(journal_id)
        if host is not None:
            return host
        if journal_id in self._former_ids or is_allocated_id(task_id):
            raise journal_moved_error()
        raise TaskNotFoundError(task_id)

    async def get_reader(self, task_id: str, account: str) -> tuple[TaskReader, TaskRow]:
        """Return a reader of a task of the account, and the task's row.

        If hosts share a store, the task may be of any journal in it.

        Raises:
            TaskNotFoundError: the account has no such task.
            PeerUnavailableError: another host has the journal, and hosts do not share a store.
            JournalUnavailableError: the journal can't be read.
        """
        if self.stored is not None and parse_journal_id(task_id) not in self.hosts:
            return self.stored, await get_account_row(self.stored, task_id, account)
        host = self.get(task_id)
        return host.journal, await host.get_account_row(task_id, account)

    async def acquire(
        self, task_id: str, account: str | None, *, may_have_ended: bool = False
    ) -> JournalHost:
        """Return the host of a task's journal, which is taken over if its lease has ended.

        Without an account, the task may be of any account.

        Raises:
            TaskNotFoundError: the account has no such task.
            TaskEndedError: it has ended, and its journal is not here; not with `may_have_ended`.
            TaskHostGoneError: another host has the journal, or has to take it over first.
            JournalUnavailableError: the store can't be read.
        """
        journal_id = parse_journal_id(task_id)
        if self.stored is None or journal_id in self.hosts:
            return self.get(task_id)
        if account is None:
            row = await self.stored.row(task_id)
        else:
            row = await get_account_row(self.stored, task_id, account)
        if row.is_ended and not may_have_ended:
            raise TaskEndedError(task_id, state_name(row.state))
        lease = await self.stored.find_lease(journal_id)
        if lease is not None and lease.is_live:
            problem = "its lease on the task has not ended; try again then"
            raise _gone_error(problem, lease.remaining_s)
        if self.take_over is not None and not self._is_draining:
            await self.take_over(journal_id)
        if journal_id not in self.hosts:
            problem = "a host that runs the agents of its tasks takes them over; try again then"
            raise _gone_error(problem, self._resources.settings.lease_s / 4)
        return self.hosts[journal_id]

    async def get_writable(
        self, message: message_pb2.Message, submission: message_service_pb2.Submission
    ) -> JournalHost:
        """Return the host of the journal that a submission is for.

        Raises:
            TaskNotFoundError, TaskEndedError, TaskHostGoneError: as `acquire`.
            PeerUnavailableError: it is shutting down, or does not have the journal.
            JournalUnavailableError: the journal can't be written, or its lease has ended.
        """
        if message.task_id:
            host = await self.acquire(message.task_id, submission.account)
        elif submission.task_id:
            found = self.hosts.get(parse_journal_id(submission.task_id))
            if found is None:
                # The caller chose a host that had this address before, or lost the journal.
                raise journal_moved_error()
            host = found
        else:
            host = self.primary
        host.lease.check_renewed()
        is_draining = self._is_draining or host.is_draining
        if is_draining and not submission.HasField("parent"):
            # Running tasks may finish during the drain, so their calls of children are allowed.
            raise PeerUnavailableError("this host", "it is shutting down; try again elsewhere")
        error = host.flush_scheduler.error
        if error is not None:
            raise JournalUnavailableError(error.path, error.problem)
        return host

    async def adopt(self, journal: Journal, memory: AgentMemory | None = None) -> None:
        """Serve another journal, and recover its unfinished tasks.

        Returns as soon as the tasks can be read. The journal is closed when this host ends, or
        when another host takes it over.

        Raises:
            JournalUnavailableError: the tasks can't be read; the journal is closed, and other
                hosts may take it over.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group.create_task(self._serve(journal, memory, ready))
        await asyncio.shield(ready)

    @property
    def unfinished_agents(self) -> frozenset[str]:
        """The agents of the unfinished tasks in all journals."""
        return frozenset(
            row.agent for host in self.hosts.values() for row in host.journal.list_unfinished()
        )

    def find_missing_agents(self) -> dict[str, frozenset[str]]:
        """Return the idle adopted journals with unfinished tasks of agents that don't run here.

        The values are the agents of all unfinished tasks of the journal.
        """
        return {
            journal_id: agents
            for journal_id, host in self.hosts.items()
            if host is not self.primary
            and (agents := host.needed_agents) - self._resources.agents.keys()
        }

    @contextmanager
    def hide(self, journal_id: str) -> Iterator[None]:
        """Omit a journal from `ids` while a block runs. Its tasks are still served."""
        self._hidden.add(journal_id)
        try:
            yield
        finally:
            self._hidden.discard(journal_id)

    async def release(self, journal_id: str) -> None:
        """Release an adopted journal, so that a host with the right agents takes it over."""
        host = self.hosts[journal_id]
        self._forget(journal_id)
        await host.release()

    async def drain(self, grace_s: float) -> None:
        """Refuse new tasks, wait `grace_s` for running tasks, then fail the remaining tasks."""
        self._is_draining = True
        async with asyncio.TaskGroup() as group:
            for host in self.hosts.values():
                group.create_task(host.drain(grace_s))

    def _build_host(self, journal: Journal, memory: AgentMemory | None) -> JournalHost:
        journal.on_rows_changed = self._changes.publish
        return JournalHost(journal, self._resources, memory or open_memory_of_process())

    async def _serve(
        self, journal: Journal, memory: AgentMemory | None, ready: asyncio.Future[None]
    ) -> None:
        """Serve an adopted journal until this host ends or another host takes the journal."""
        host = self._build_host(journal, memory)
        try:
            async with host:
                self.hosts[journal.id] = host
                self._former_ids.discard(journal.id)
                ready.set_result(None)
                if self._is_draining:
                    await host.drain(0)
                await _wait_for_any(self._closing, host.lost)
                if host.lost.is_set() and self.hosts.get(journal.id) is host:
                    self._forget(journal.id)
        except JournalUnavailableError as error:
            if ready.done():
                raise
            # The other journals are still served.
            with suppress(TrunklineError):
                await journal.close(for_takeover=True)
            ready.set_exception(error)
        finally:
            ready.cancel()
            await host.close(for_takeover=self._is_leaving)

    def _forget(self, journal_id: str) -> None:
        del self.hosts[journal_id]
        self._former_ids.add(journal_id)


def _gone_error(problem: str, retry_after_s: float) -> TaskHostGoneError:
    return TaskHostGoneError("the task's host", problem, str(max(1, math.ceil(retry_after_s))))


async def _wait_for_any(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
