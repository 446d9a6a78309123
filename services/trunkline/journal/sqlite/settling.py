"""Moves what belongs to ended tasks into rows of their own, and deletes what nobody needs."""

import itertools
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite.batch_index import BatchIndex, BatchPosition, pack_batches
from trunkline.journal.sqlite.connection import DAMAGED

# Rows of `settled` are about this big: few enough to find, small enough to read a part of.
_CHUNK_BYTES: Final = 16 * 1024
# In one step, whatever the budget: it runs between two turns of the loop.
_SETTLED_TASKS: Final = 32
_DELETED_COMMITS: Final = 128
_DELETED_CHUNKS: Final = 32
_RELEASED_BATCHES: Final = 512
# Many at once: in a statement of its own, each would cost four times as much. By their commits in
# JSON: the offset in the upper half of a number, the size in the lower.
_SLICES: Final = (
    "SELECT substr(payload, (place.value >> 32) + 1, place.value & 4294967295) "
    "FROM json_each(?) AS place CROSS JOIN commits ON commits.id = CAST(place.key AS INTEGER)"
)
# Of the latest commits, kept in memory: a task that ends at once is settled from there.
_LATEST_BYTES: Final = 512 * 1024


class RecentCommits:
    """The payloads of the latest commits."""

    def __init__(self, limit_bytes: int = _LATEST_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._payloads: OrderedDict[int, bytearray] = OrderedDict()
        self._size_bytes = 0

    def add(self, commit_id: int, payload: bytearray) -> None:
        """Keep the payload of the last commit; the oldest ones make room."""
        # SQLite gives the ids of rows that were deleted out again.
        self._size_bytes -= len(self._payloads.pop(commit_id, b""))
        self._payloads[commit_id] = payload
        self._size_bytes += len(payload)
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= len(self._payloads.popitem(last=False)[1])

    def read_batches(self, places: Sequence[BatchPosition]) -> list[bytes] | None:
        """Return batches of commits, in order; None if not all of them are here."""
        payloads = self._payloads
        if not all(one.commit_id in payloads for one in places):
            return None
        return [
            bytes(payloads[one.commit_id][one.offset : one.offset + one.size_bytes])
            for one in places
        ]


class Settler:
    """What waits to be moved or deleted, and one step of it at a time.

    Each step is one transaction. What it changes here counts only once that is through.
    """

    def __init__(self, path: str, directory: BatchIndex) -> None:
        self._path = path
        self._directory = directory
        self.recent_commits = RecentCommits()
        # Tasks that ended, not settled yet; how far the first of them has come.
        self._ended: deque[str] = deque()
        self._settled_to = 0
        # Commits that nobody needs. They are deleted one write later: a reader that looked a
        # place up has done with it by then.
        self._free: deque[int] = deque()
        # Tasks that were compacted, whose events are not all deleted yet.
        self._compacted: deque[str] = deque()
        # What the step at hand will have done.
        self._moved: list[str] = []
        self._deleted = 0
        self._cleared: list[str] = []
        self._next_position = 0
        self.has_more = False
        """The step at hand left more than a step's work."""

    @property
    def has_work(self) -> bool:
        """There is something to move or to delete."""
        return bool(self._ended or self._free or self._compacted or self._directory.has_dropped)

    @property
    def has_unused_commits(self) -> bool:
        """The next step deletes rows of `commits`."""
        return bool(self._free)

    def add_ended(self, task_ids: Iterable[str]) -> None:
        """Settle these, too."""
        self._ended.extend(task_ids)

    def add_unused_commit(self, commit_id: int) -> None:
        """Delete this row of `commits`, too."""
        self._free.append(commit_id)

    def add_compacted(self, task_ids: Iterable[str]) -> None:
        """Delete the events of these, which are read as their folds now."""
        self._compacted.extend(task_ids)

    def run_step(self, connection: sqlite3.Connection, budget_bytes: int) -> None:
        """Do one step, in a transaction of the caller."""
        self._move(connection, budget_bytes)
        free = list(itertools.islice(self._free, _DELETED_COMMITS))
        connection.executemany("DELETE FROM commits WHERE id = ?", [(one,) for one in free])
        self._deleted = len(free)
        self._clear(connection)

    def confirm(self) -> None:
        """The transaction is through."""
        self._settled_to = self._next_position
        for _ in self._moved:
            self._ended.popleft()
        for _ in range(self._deleted):
            self._free.popleft()
        for _ in self._cleared:
            self._compacted.popleft()
        self._directory.drop(self._moved)
        self._free.extend(self._directory.release(_RELEASED_BATCHES))
        self.has_more = (
            bool(self._ended or self._compacted or self._directory.has_dropped)
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
            if position < (self._directory.head(task_id) or 0):
                break
            moved.append(task_id)
            position = 0
        connection.executemany("INSERT INTO settled VALUES (?, ?, ?, ?)", chunks)
        connection.executemany(
            "UPDATE tasks SET stage = 1 WHERE task_id = ?", [(one,) for one in moved]
        )
        self._moved, self._next_position = moved, position

    def _clear(self, connection: sqlite3.Connection) -> None:
        """Delete some of the oldest events; a reader that finds the first finds all behind it."""
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
        """The next row of `settled` for a task, if anything is left."""
        places = self._directory.find(task_id, after, limit_bytes=_CHUNK_BYTES)
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
    """Read batches of commits, in order. JournalUnavailableError: one isn't there."""
    if not places:
        return []
    first, last = places[0].commit_id, places[-1].commit_id
    if last - first >= 2 * len(places):
        return _read_each(connection, places, path)
    # Most of the commits in between hold something of the task: they are read in one go.
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
