"""The journals that a host serves: its own, and the journals of failed hosts that it adopts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import open_memory_of_process
from trunkline.errors import (
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.events import parse_journal_id
from trunkline.journal.journal import Journal
from trunkline.tasks.change_watchers import TaskChanges
from trunkline.tasks.journal_host import JournalHost
from trunkline.tasks.journal_lease import journal_moved_error
from trunkline.tasks.resources import HostResources
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
        memory: AgentMemory | None,
    ) -> None:
        """`changes` gets the changed rows of all journals. `memory` belongs to the journal."""
        self._resources = resources
        self._changes = changes
        self._group = asyncio.TaskGroup()
        self._closing = asyncio.Event()
        self._is_draining = False
        self.primary: JournalHost = self._build_host(journal, memory)
        self.hosts: dict[str, JournalHost] = {journal.id: self.primary}
        """The hosts of all journals that are served here, by journal id."""
        self._hidden: set[str] = set()
        # The ids of journals that were served here before.
        self._former_ids: set[str] = set()

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
        self._is_draining = True
        self._closing.set()
        await self.primary.__aexit__(exc_type, exc, traceback)
        await self._group.__aexit__(exc_type, exc, traceback)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the served journals except hidden journals, the primary first."""
        return tuple(journal_id for journal_id in self.hosts if journal_id not in self._hidden)

    def get(self, task_id: str) -> JournalHost:
        """Return the host of the journal of a task.

        Raises:
            TaskNotFoundError: the journal was never served here.
            PeerUnavailableError: another host has the journal.
        """
        journal_id = parse_journal_id(task_id)
        host = self.hosts.get(journal_id)
        if host is not None:
            return host
        if journal_id in self._former_ids:
            raise journal_moved_error()
        raise TaskNotFoundError(task_id)

    def get_writable(
        self, message: message_pb2.Message, submission: message_service_pb2.Submission
    ) -> JournalHost:
        """Return the host of the journal that a submission is for.

        Raises:
            PeerUnavailableError: it is shutting down, or has lost the journal.
            JournalUnavailableError: the journal can't be written, or its lease has ended.
        """
        task_id = message.task_id or submission.task_id
        journal_id = parse_journal_id(task_id)
        if message.task_id or journal_id in self._former_ids:
            host = self.get(task_id)
        else:
            host = self.hosts.get(journal_id, self.primary)
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
            await host.close()

    def _forget(self, journal_id: str) -> None:
        del self.hosts[journal_id]
        self._former_ids.add(journal_id)


async def _wait_for_any(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
