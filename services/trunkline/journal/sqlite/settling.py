"""Moves the events of ended tasks into rows by task, and deletes rows that are no longer needed."""

import itertools
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite.batch_index import BatchIndex, BatchPosition, pack_batches
from trunkline.journal.sqlite.connection import DAMAGED

# The size of a row of `settled`: large enough for few rows, small enough to read a part of a task.
_CHUNK_BYTES: Final = 16 * 1024
# Limits of one step, beside its budget: the step blocks the event loop while it runs.
_SETTLED_TASKS: Final = 32
_DELETED_COMMITS: Final = 128
_DELETED_CHUNKS: Final = 32
_RELEASED_BATCHES: Final = 512
# Reads many batches in one statement, which costs a quarter of a statement for each. The positions
# are JSON by commit: the offset in the upper half of a number, the size in the lower.
_SLICES: Final = (
    "SELECT substr(payload, (place.value >> 32) + 1, place.value & 4294967295) "
    "FROM json_each(?) AS place CROSS JOIN commits ON commits.id = CAST(place.key AS INTEGER)"
)
# The size of the latest commits in memory. A task that ends soon is settled from there.
_LATEST_BYTES: Final = 512 * 1024


class RecentCommits:
    """The payloads of the latest commits."""

    def __init__(self, limit_bytes: int = _LATEST_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._payloads: OrderedDict[int, bytearray] = OrderedDict()
        self._size_bytes = 0

    def add(self, commit_id: int, payload: bytearray) -> None:
        """Add the payload of the last commit, and drop the oldest ones beyond the limit."""
        # SQLite reuses the ids of deleted rows.
        self._size_bytes -= len(self._payloads.pop(commit_id, b""))
        self._payloads[commit_id] = payload
        self._size_bytes += len(payload)
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= len(self._payloads.popitem(last=False)[1])

    def read_batches(self, places: Sequence[BatchPosition]) -> list[bytes] | None:
        """Return the batches at these positions. None: some of them are not here."""
        payloads = self._payloads
        if not all(one.commit_id in payloads for one in places):
            return None
        return [
            bytes(payloads[one.commit_id][one.offset : one.offset + one.size_bytes])
            for one in places
        ]


class Settler:
    """Moves and deletes events in steps of one transaction each.

    `confirm` takes a step's tasks off the queues after its transaction is committed.
    """

    def __init__(self, path: str, batch_index: BatchIndex) -> None:
        self._path = path
        self._batch_index = batch_index
        self.recent_commits: RecentCommits = RecentCommits()
        # Ended tasks that are not settled yet, and the last settled sequence of the first of them.
        self._ended: deque[str] = deque()
        self._settled_to = 0
        # Unneeded commits. They are deleted one write later, when readers that had looked up a
        # position have read it.
        self._unused: deque[int] = deque()
        # Compacted tasks whose events are not all deleted yet.
        self._compacted: deque[str] = deque()
        # The work of the current step.
        self._moved: list[str] = []
        self._deleted = 0
        self._cleared: list[str] = []
        self._next_position = 0
        self.has_more: bool = False
        """The last step left enough work for another one."""

    @property
    def has_work(self) -> bool:
        """There is something to move or to delete."""
        return bool(self._ended or self._unused or self._compacted or self._batch_index.has_dropped)

    @property
    def has_unused_commits(self) -> bool:
        """The next step deletes rows of `commits`."""
        return bool(self._unused)

    def add_ended(self, task_ids: Iterable[str]) -> None:
        """Queue ended tasks for settling."""
        self._ended.extend(task_ids)

    def add_unused_commit(self, commit_id: int) -> None:
        """Queue a row of `commits` for deletion."""
        self._unused.append(commit_id)

    def add_compacted(self, task_ids: Iterable[str]) -> None:
        """Queue compacted tasks, whose events can be deleted."""
        self._compacted.extend(task_ids)

    def run_step(self, connection: sqlite3.Connection, budget_bytes: int) -> None:
        """Run one step in the caller's transaction."""
        self._move(connection, budget_bytes)
        free = list(itertools.islice(self._unused, _DELETED_COMMITS))
        connection.executemany("DELETE FROM commits WHERE id = ?", [(one,) for one in free])
        self._deleted = len(free)
        self._clear(connection)

    def confirm(self) -> None:
        """Record that the step's transaction is committed."""
        self._settled_to = self._next_position
        for _ in self._moved:
            self._ended.popleft()
        for _ in range(self._deleted):
            self._unused.popleft()
        for _ in self._cleared:
            self._compacted.popleft()
        self._batch_index.drop(self._moved)
        self._unused.extend(self._batch_index.release(_RELEASED_BATCHES))
        self.has_more = (
            bool(self._ended or self._compacted or self._batch_index.has_dropped)
            or self._deleted == _DELETED_COMMITS
        )

    def _move(self, connection: sqlite3.Connection, budget_bytes: int) -> None:
        chunks: list[tuple[str, int, int, bytes]] = []
        moved: list[str] = []
        position = self._settled_to
        for task_id in list(itertools.islice(self._ended, _SETTLED_TASKS)):
            while budget_bytes > 0 and (chunk := self._chunk(connection, task_id, position)):
                chunks.append(chunk)
                position = chunk[2]
                budget_bytes -= len(chunk[3])
            if position < (self._batch_index.head(task_id) or 0):
                break
            moved.append(task_id)
            position = 0
        connection.executemany("INSERT INTO settled VALUES (?, ?, ?, ?)", chunks)
        connection.executemany(
            "UPDATE tasks SET stage = 1 WHERE task_id = ?", [(one,) for one in moved]
        )
        self._moved, self._next_position = moved, position

    def _clear(self, connection: sqlite3.Connection) -> None:
        """Delete some events, each task's oldest first: readers check that the first one exists."""
        self._cleared = []
        left = _DELETED_CHUNKS
        for task_id in list(itertools.islice(self._compacted, _SETTLED_TASKS)):
            cursor = connection.execute(
                "DELETE FROM settled WHERE rowid IN (SELECT rowid FROM settled WHERE task_id = ? "
                "ORDER BY first_sequence LIMIT ?)",
                (task_id, left),
            )
            left -= cursor.rowcount
            if left <= 0:
                break
            connection.execute("UPDATE tasks SET stage = 3 WHERE task_id = ?", (task_id,))
            self._cleared.append(task_id)

    def _chunk(
        self, connection: sqlite3.Connection, task_id: str, after: int
    ) -> tuple[str, int, int, bytes] | None:
        """Return the next row of `settled` for a task, if any events are left."""
        places = self._batch_index.find(task_id, after, limit_bytes=_CHUNK_BYTES)
        if not places:
            return None
        batches = self.recent_commits.read_batches(places) or read_batches(
            connection, places, self._path
        )
        first, last = parse_header(batches[0]), parse_header(batches[-1])
        payload, _ = pack_batches(batches)
        return task_id, first.first_sequence, last.first_sequence + last.count - 1, bytes(payload)


def read_batches(
    connection: sqlite3.Connection, places: Sequence[BatchPosition], path: str
) -> list[bytes]:
    """Read batches of commits, in order. JournalUnavailableError: one is missing."""
    if not places:
        return []
    first, last = places[0].commit_id, places[-1].commit_id
    if last - first >= 2 * len(places):
        return _read_each(connection, places, path)
    # Most commits in the range contain the task's batches, so one query reads them all.
    payloads = dict(
        connection.execute(
            "SELECT id, payload FROM commits WHERE id BETWEEN ? AND ?", (first, last)
        )
    )
    try:
        return [
            payloads[place.commit_id][place.offset : place.offset + place.size_bytes]
            for place in places
        ]
    except KeyError as error:
        raise JournalUnavailableError(path, DAMAGED) from error


def _read_each(
    connection: sqlite3.Connection, places: Sequence[BatchPosition], path: str
) -> list[bytes]:
    said = ",".join([f'"{one.commit_id}":{one.offset << 32 | one.size_bytes}' for one in places])
    found = [sealed for (sealed,) in connection.execute(_SLICES, (f"{{{said}}}",))]
    if len(found) != len(places):
        raise JournalUnavailableError(path, DAMAGED)
    return found
