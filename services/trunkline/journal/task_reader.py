"""Reads the events of tasks that are committed, and folds them into snapshots."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeAlias

from trunkline.core.database import DAMAGED, translate_errors
from trunkline.core.task_states import StateValue
from trunkline.errors import (
    CursorExpiredError,
    InvalidArgumentError,
    JournalUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.batches import trim_batch
from trunkline.journal.events import last_sequence, parse_header
from trunkline.journal.fold import Fold
from trunkline.journal.fold_cache import FoldCache
from trunkline.journal.listing import build_page, parse_filter, parse_page_size, parse_page_token
from trunkline.journal.store import CommittedTasks, TaskPage, TaskRow
from trunkline.v1 import snapshot_pb2, task_service_pb2

READ_BYTES: Final = 64 * 1024
"""The usual limit of a read."""
# Within the class, `list` is a method.
Batches: TypeAlias = list[bytes]


class TaskReader(ABC):
    """The ordered, gap-free events of each task, and the states folded from them.

    `Journal` reads the tasks of the journal that it writes. `StoredTasks` reads the tasks of all
    journals in a store. Readers pass their cursor, the last sequence that they have read, to each
    read.

    Coroutines raise JournalUnavailableError if the store can't be read.
    """

    def __init__(self, store: CommittedTasks, name: str) -> None:
        """`name` is the store in errors."""
        self._store = store
        self._name = name
        self._path = Path(name)
        self._folds = FoldCache(head=self.head, read=self.read, find_stored=store.find_fold)

    @abstractmethod
    async def find(self, task_id: str) -> TaskRow | None:
        """Return the row of a task, with its current head, or None if there is no such task."""

    async def row(self, task_id: str) -> TaskRow:
        """Return the row of a task, with its current head.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
        """
        row = await self.find(task_id)
        if row is None:
            raise TaskNotFoundError(task_id)
        return row

    @abstractmethod
    def latest(self, task_id: str) -> tuple[int, StateValue] | None:
        """Return the last committed sequence and the state of a task, if they are in memory."""

    @abstractmethod
    def read_tail(
        self, task_id: str, after: int, *, limit_bytes: int = READ_BYTES
    ) -> tuple[Batches, int, int, StateValue] | None:
        """Return the results of `read_next` and `latest`, if both are in memory."""

    @abstractmethod
    async def wait(self, task_id: str, after: int) -> None:
        """Wait until there is an event after `after` or the task has ended.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            TrunklineError: its further events are not here.
        """

    @abstractmethod
    def subscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a read may have another result. It must not raise."""

    @abstractmethod
    def unsubscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Remove a listener. Removing it twice has no effect."""

    async def head(self, task_id: str) -> int:
        """Return the last committed sequence of a task.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
        """
        return (await self.row(task_id)).head

    async def read(self, task_id: str, after: int, *, limit_bytes: int = READ_BYTES) -> Batches:
        """Return the sealed batches after the sequence `after`; the first begins at `after` + 1.

        If there are events after `after`, at least one batch is returned, and more up to the limit.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            JournalUnavailableError: the store can't be read.
            CursorExpiredError: the events after `after` are past retention.
            TrunklineError: no event is after `after`, and further events will not be here.
        """
        row = await self.row(task_id)
        if after + 1 < row.first_available:
            raise _cursor_expired(row, after)
        if after >= row.head:
            await self._check_open(row)
            return []
        batches = await self._batches(task_id, after, limit_bytes)
        with self._translate_errors():
            first_sequence = parse_header(batches[0]).first_sequence if batches else row.head
        if first_sequence > after + 1 or not batches:
            # Since its row was cached, the task was compacted or deleted.
            self._forget(task_id)
            row = await self.row(task_id)
            if row.first_available <= after + 1:
                raise JournalUnavailableError(self._name, DAMAGED)
            raise _cursor_expired(row, after)
        if first_sequence <= after:
            batches[0] = trim_batch(batches[0], after)
        return batches

    async def read_next(
        self, task_id: str, after: int, *, limit_bytes: int = READ_BYTES
    ) -> tuple[Batches, int]:
        """Return the batches that `read` returns, and their last sequence.

        Without batches, the sequence is `after`. It raises the errors of `read`.
        """
        cached = self.read_tail(task_id, after, limit_bytes=limit_bytes)
        if cached is not None:
            return cached[:2]
        batches = await self.read(task_id, after, limit_bytes=limit_bytes)
        return batches, last_sequence(batches[-1]) if batches else after

    async def check_cursor(self, task_id: str, after: int, epoch: int) -> None:
        """Check that a reader that has all events up to `after` can continue there.

        `epoch` is the epoch of the last batch that the reader has, or 0 if it is unknown.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            CursorExpiredError: the following events are past retention, or the reader has events
                that a power failure undid, so that other events may have their sequences now.
        """
        row = await self.row(task_id)
        if not row.first_available - 1 <= after <= row.head:
            raise _cursor_expired(row, after)
        if epoch and after and await self._epoch_at(row, after) != epoch:
            raise _cursor_expired(row, after)

    async def snapshot(
        self,
        task_id: str,
        *,
        at: int | None = None,
        since: snapshot_pb2.TaskSnapshot | None = None,
    ) -> snapshot_pb2.TaskSnapshot:
        """Return the state of a task after sequence `at`, or after all events.

        `since` is an earlier state of the task, from which the fold may begin. It is not changed.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            InvalidArgumentError: the task has no such sequence.
            CursorExpiredError: the events up to `at` are past retention.
        """
        head = await self.head(task_id)
        until = head if at is None else at
        if not 0 <= until <= head:
            raise InvalidArgumentError("at", f"the task has {head} events so far")
        return (await self._fold(task_id, until, since)).snapshot()

    async def find_stored_snapshot(self, task_id: str) -> snapshot_pb2.TaskSnapshot | None:
        """Return the stored snapshot of a task whose events are past retention, or None.

        Raises:
            JournalUnavailableError: the store can't be read.
        """
        stored = await self._store.find_fold(task_id)
        return None if stored is None else snapshot_pb2.TaskSnapshot.FromString(stored.snapshot)

    async def forwarded_sequences(self, task_id: str) -> dict[str, int]:
        """Return the last sequence forwarded to a task, by origin task.

        The origin task is the task that first wrote the events. `splice` uses these sequences to
        skip events that were forwarded before a restart or in earlier turns.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
        """
        return (await self._fold(task_id, await self.head(task_id))).forwarded_sequences

    async def list(
        self, query: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """Return a page of an account's tasks by status time, newest first, then by id.

        Raises:
            InvalidArgumentError: the page size or token is invalid.
        """
        size = parse_page_size(query)
        last_row = parse_page_token(query.page_token)
        # One row more shows whether there is a further page.
        page = await self._store.list_rows(parse_filter(query), limit=size + 1, after=last_row)
        has_more = len(page.rows) > size
        return build_page(TaskPage(page.rows[:size], page.total), has_more=has_more)

    @abstractmethod
    async def _check_open(self, row: TaskRow) -> None:
        """Raise an error if the task has not ended and its further events will not be here."""

    def _forget(self, task_id: str) -> None:
        """Drop all caches of an ended task, so that the next access reads the store."""
        self._folds.drop(task_id)

    async def _fold(
        self, task_id: str, until: int, since: snapshot_pb2.TaskSnapshot | None = None
    ) -> Fold:
        with self._translate_errors():
            return await self._folds.fold(task_id, until, since)

    def _translate_errors(self) -> AbstractContextManager[None]:
        """Translate errors of damaged events, which the store does not parse."""
        return translate_errors(self._path)

    async def _batches(self, task_id: str, after: int, limit_bytes: int) -> Batches:
        return await self._store.read(task_id, after, limit_bytes=limit_bytes)

    async def _epoch_at(self, row: TaskRow, sequence: int) -> int:
        """Return the epoch of the batch that covers a sequence, or 0 if it is unknown."""
        if sequence < row.first_available:
            stored = await self._store.find_fold(row.task_id)
            return stored.epoch if stored else 0
        batches = await self._batches(row.task_id, sequence - 1, 0)
        with self._translate_errors():
            return parse_header(batches[0]).epoch if batches else 0


def _cursor_expired(row: TaskRow, after: int) -> CursorExpiredError:
    last_expired = row.first_available - 1
    # A reader before the available events can start from the snapshot at the last expired sequence.
    # A reader with events that do not exist starts from the current snapshot.
    sequence = last_expired if after < last_expired else row.head
    return CursorExpiredError(row.task_id, str(after), str(sequence))
