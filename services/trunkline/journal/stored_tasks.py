"""The tasks of all journals in a store, for a host that does not own these journals."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from trunkline.core.storable_texts import is_storable
from trunkline.core.task_states import StateValue
from trunkline.errors import JournalUnavailableError, PeerUnavailableError
from trunkline.journal.events import parse_journal_id
from trunkline.journal.store import JournalReader, LeaseState, TaskRow, WebhookRow
from trunkline.journal.subscribers import Subscribers
from trunkline.journal.task_reader import READ_BYTES, Batches, TaskReader

logger = logging.getLogger(__name__)

# How long a lease, or the row of an ended task, is used again.
_FRESH_S: Final = 1.0
# The number of rows and of leases in memory.
_CACHED: Final = 1024


class StoredTasks(TaskReader):
    """Reads what is committed of tasks whose journals are not here.

    A reader that has all events of an unfinished task waits here while no host has the journal. If
    a host has it, the read raises PeerUnavailableError, so that the reader continues there, with
    events as soon as they are written.

    A read shows at least what was committed before it began. Leases are up to a second old. `run`
    must run while tasks are watched.
    """

    def __init__(self, reader: JournalReader, *, poll_s: float) -> None:
        """Watched tasks are looked up every `poll_s` seconds."""
        super().__init__(reader, reader.name)
        self._reader = reader
        self._poll_s = poll_s
        self._rows: OrderedDict[str, tuple[float, TaskRow]] = OrderedDict()
        self._leases: OrderedDict[str, tuple[float, LeaseState]] = OrderedDict()
        self._subscribers = Subscribers()
        self._is_watched = asyncio.Event()

    @property
    def store_id(self) -> str:
        """The id of the store."""
        return self._reader.store_id

    async def find(self, task_id: str) -> TaskRow | None:
        """Return the row of a task, or None; see `TaskReader`."""
        read_s, row = self._rows.get(task_id, (0.0, None))
        if row is not None and row.is_ended and time.monotonic() - read_s <= _FRESH_S:
            return row
        rows = await self._store.find_rows([task_id]) if is_storable(task_id) else {}
        self._note_rows(rows.values())
        row = rows.get(task_id)
        if row is None:
            self._forget(task_id)
        return row

    async def find_lease(self, journal_id: str) -> LeaseState | None:
        """Return the lease on a journal, or None if the store does not have the journal."""
        read_s, lease = self._leases.get(journal_id, (0.0, None))
        if lease is None or time.monotonic() - read_s > _FRESH_S:
            leases = await self._reader.find_leases([journal_id])
            self._note_leases(leases)
            lease = leases.get(journal_id)
        return lease

    async def find_alias(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias is bound to in any journal, or None."""
        if not is_storable(account) or not is_storable(alias):
            return None
        return (await self._store.find_aliases([(account, alias)])).get((account, alias))

    async def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> Sequence[WebhookRow]:
        """Return the webhooks of a task, or of all, in any of the states, the newest first."""
        return await self._store.find_webhooks(task_id=task_id, states=states, limit=limit)

    def latest(self, task_id: str) -> tuple[int, StateValue] | None:
        """Return the last sequence and the state of a task; see `TaskReader`."""
        _, row = self._rows.get(task_id, (0.0, None))
        return None if row is None else (row.head, row.state)

    def read_tail(
        self,
        task_id: str,
        after: int,
        *,
        limit_bytes: int = READ_BYTES,
    ) -> tuple[Batches, int, int, StateValue] | None:
        """Return the result for a reader that has all events of an unfinished task.

        It is known until `run` finds a change.
        """
        _, row = self._rows.get(task_id, (0.0, None))
        if row is None or row.is_ended or after < row.head:
            return None
        return [], after, row.head, row.state

    async def wait(self, task_id: str, after: int) -> None:
        """Wait until there is an event after `after` or the task has ended.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            PeerUnavailableError: a host has the journal.
        """
        while (row := await self.row(task_id)).head <= after and not row.is_ended:
            await self._check_open(row)
            self._is_watched.set()
            await self._subscribers.wait(task_id)

    def subscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call `listener` when the task has changed, or a host has its journal."""
        self._is_watched.set()
        self._subscribers.subscribe(task_id, listener)

    def unsubscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Remove a listener. Removing it twice has no effect."""
        self._subscribers.unsubscribe(task_id, listener)

    async def run(self) -> None:
        """Look for changes of the watched tasks, until canceled."""
        while True:
            await self._is_watched.wait()
            await asyncio.sleep(self._poll_s)
            task_ids = self._subscribers.task_ids
            if not task_ids:
                self._is_watched.clear()
                continue
            try:
                await self._look_up(task_ids)
            except JournalUnavailableError as error:
                logger.info("store.not_read", extra={"problem": error.problem})

    async def _look_up(self, task_ids: Collection[str]) -> None:
        """Wake the readers of those tasks that have changed, have a host, or were deleted."""
        leases = await self._reader.find_leases({parse_journal_id(each) for each in task_ids})
        self._note_leases(leases)
        rows = await self._store.find_rows(task_ids)
        self._note_rows(rows.values())
        for task_id in task_ids:
            lease = leases.get(parse_journal_id(task_id))
            if task_id not in rows or (lease is not None and lease.is_live):
                self._rows.pop(task_id, None)
                self._subscribers.notify(task_id)

    async def _check_open(self, row: TaskRow) -> None:
        if row.is_ended:
            return
        lease = await self.find_lease(parse_journal_id(row.task_id))
        if lease is not None and lease.is_live:
            # Callers outside the mesh must not learn the owner's name.
            problem = "another host has the task's journal; send the request there"
            raise PeerUnavailableError("this host", problem)

    def _forget(self, task_id: str) -> None:
        super()._forget(task_id)
        self._rows.pop(task_id, None)

    def _note_rows(self, rows: Iterable[TaskRow]) -> None:
        """Keep rows that were read, and wake the readers of those that have changed."""
        for row in rows:
            _, earlier = self._rows.get(row.task_id, (0.0, None))
            self._rows[row.task_id] = time.monotonic(), row
            self._rows.move_to_end(row.task_id)
            if row != earlier:
                self._subscribers.notify(row.task_id)
        while len(self._rows) > _CACHED:
            self._rows.popitem(last=False)

    def _note_leases(self, leases: dict[str, LeaseState]) -> None:
        for journal_id, lease in leases.items():
            self._leases[journal_id] = time.monotonic(), lease
            self._leases.move_to_end(journal_id)
        while len(self._leases) > _CACHED:
            self._leases.popitem(last=False)
