"""Moves the events of ended tasks into rows by task, and deletes rows that are not needed."""

import itertools
import json
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from trunkline.database import DAMAGED
from trunkline.encryption import Cipher
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite.batch_index import BatchIndex, BatchPosition, pack_batches
from trunkline.journal.sqlite.chain import (
    COMMITS,
    SETTLED,
    HashChains,
    Link,
    commit_place,
    settled_place,
)
from trunkline.journal.sqlite.schema import TaskStage

# The size of a row of `settled`: large enough for few rows, small enough to read a part of a task.
_CHUNK_BYTES: Final = 16 * 1024
# Limits of one step, besides its budget: a step may run on the event loop.
_TASKS_PER_STEP: Final = 32
_COMMITS_PER_STEP: Final = 128
_ROWS_PER_STEP: Final = 32
_BATCHES_PER_STEP: Final = 512
# Reads many batches in one statement, which costs a quarter of one statement for each batch. Its
# parameter is a JSON object of positions: the key is the commit's id. The value has the offset in
# the upper 32 bits and the size in the lower 32.
_SELECT_BATCHES: Final = (
    "SELECT substr(payload, (position.value >> 32) + 1, position.value & 4294967295) "
    "FROM json_each(?) AS position CROSS JOIN commits "
    "ON commits.id = CAST(position.key AS INTEGER)"
)
_SELECT_COMMIT_LINKS: Final = (
    "SELECT id, hash FROM commits WHERE id IN (SELECT value FROM json_each(?))"
)
# Encrypted commits are read whole.
_SELECT_COMMITS: Final = (
    "SELECT id, payload FROM commits WHERE id IN (SELECT value FROM json_each(?))"
)
# The limit of the commits in memory. A short task is settled from there, without a read.
_RECENT_BYTES: Final = 512 * 1024


class RecentCommits:
    """The payloads of the latest commits."""

    def __init__(self, limit_bytes: int = _RECENT_BYTES) -> None:
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

    def read_batches(self, positions: Sequence[BatchPosition]) -> list[bytes] | None:
        """Return the batches at these positions. None: some of their commits were dropped."""
        payloads = self._payloads
        if not all(position.commit_id in payloads for position in positions):
            return None
        return [
            bytes(payloads[commit_id][offset : offset + size_bytes])
            for commit_id, offset, size_bytes in positions
        ]


class Settler:
    """Moves and deletes events in steps of one transaction each.

    Call `confirm` after the transaction of a step is committed. Only then is its work removed from
    the queues, so a step that fails is repeated.
    """

    def __init__(
        self, path: str, batch_index: BatchIndex, chains: HashChains, cipher: Cipher | None
    ) -> None:
        self._path = path
        self._batch_index = batch_index
        self._chains = chains
        self._cipher = cipher
        self.recent_commits: RecentCommits = RecentCommits()
        # Ended tasks that are not settled yet, and the last settled sequence of the first of them.
        self._ended: deque[str] = deque()
        self._settled_to = 0
        # Commits that no batch needs. The next step deletes them, so that a reader that has looked
        # up a position can still read it.
        self._unused: deque[int] = deque()
        # Compacted tasks that still have rows of `settled`.
        self._compacted: deque[str] = deque()
        # The work of the current step, which `confirm` removes from the queues.
        self._step_settled: list[str] = []
        self._step_deleted_count = 0
        self._step_cleared: list[str] = []
        self._step_settled_to = 0
        self.has_more: bool = False
        """The last step left enough work for another one."""

    @property
    def has_work(self) -> bool:
        """There are events to move, or rows to delete."""
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
        """Run one step in the caller's transaction. It moves about this many bytes."""
        self._settle_tasks(connection, budget_bytes)
        unused = list(itertools.islice(self._unused, _COMMITS_PER_STEP))
        if unused:
            links = connection.execute(_SELECT_COMMIT_LINKS, (json.dumps(unused),))
            self._chains.remove(connection, COMMITS, [Link(*row) for row in links])
        connection.executemany(
            "DELETE FROM commits WHERE id = ?", [(commit_id,) for commit_id in unused]
        )
        self._step_deleted_count = len(unused)
        self._clear_compacted(connection)

    def confirm(self) -> None:
        """Record that the step's transaction is committed."""
        self._settled_to = self._step_settled_to
        for _ in self._step_settled:
            self._ended.popleft()
        for _ in range(self._step_deleted_count):
            self._unused.popleft()
        for _ in self._step_cleared:
            self._compacted.popleft()
        self._batch_index.drop(self._step_settled)
        self._unused.extend(self._batch_index.release(_BATCHES_PER_STEP))
        self.has_more = (
            bool(self._ended or self._compacted or self._batch_index.has_dropped)
            or self._step_deleted_count == _COMMITS_PER_STEP
        )

    def _settle_tasks(self, connection: sqlite3.Connection, budget_bytes: int) -> None:
        chunks: list[tuple[str, int, int, bytes]] = []
        settled: list[str] = []
        sequence = self._settled_to
        for task_id in list(itertools.islice(self._ended, _TASKS_PER_STEP)):
            while budget_bytes > 0 and (chunk := self._next_chunk(connection, task_id, sequence)):
                chunks.append(chunk)
                sequence = chunk[2]
                budget_bytes -= len(chunk[3])
            if sequence < (self._batch_index.head(task_id) or 0):
                break
            settled.append(task_id)
            sequence = 0
        connection.executemany(
            "INSERT INTO settled VALUES (?, ?, ?, ?, ?, ?)", map(self._link, chunks)
        )
        connection.executemany(
            "UPDATE tasks SET stage = ? WHERE task_id = ?",
            [(TaskStage.SETTLED, task_id) for task_id in settled],
        )
        self._step_settled, self._step_settled_to = settled, sequence

    def _clear_compacted(self, connection: sqlite3.Connection) -> None:
        """Delete some events of compacted tasks, the oldest of each task first.

        A reader checks only that the first batch of a read is there.
        """
        self._step_cleared = []
        remaining_rows = _ROWS_PER_STEP
        for task_id in list(itertools.islice(self._compacted, _TASKS_PER_STEP)):
            rows = connection.execute(
                "SELECT rowid, number, hash FROM settled WHERE task_id = ? "
                "ORDER BY first_sequence LIMIT ?",
                (task_id, remaining_rows),
            ).fetchall()
            remaining_rows -= len(rows)
            delete_settled(connection, self._chains, rows)
            if remaining_rows <= 0:
                break
            connection.execute(
                "UPDATE tasks SET stage = ? WHERE task_id = ?", (TaskStage.CLEARED, task_id)
            )
            self._step_cleared.append(task_id)

    def _link(self, chunk: tuple[str, int, int, bytes]) -> tuple[str, int, int, bytes, int, bytes]:
        """Return the row of `settled` of a chunk, encrypted and linked."""
        task_id, first, last, payload = chunk
        if self._cipher is not None:
            payload = self._cipher.encrypt(payload, settled_place(task_id, first, last))
        link = self._chains.follow(SETTLED, payload, settled_place(task_id, first, last))
        self._chains.add(SETTLED, link)
        return (*chunk[:3], payload, *link)

    def _next_chunk(
        self, connection: sqlite3.Connection, task_id: str, after: int
    ) -> tuple[str, int, int, bytes] | None:
        """Return the row of `settled` after a sequence. None: the task has no further events."""
        positions = self._batch_index.find(task_id, after, limit_bytes=_CHUNK_BYTES)
        if not positions:
            return None
        batches = self.recent_commits.read_batches(positions) or read_batches(
            connection, positions, self._path, self._cipher
        )
        first, last = parse_header(batches[0]), parse_header(batches[-1])
        payload, _ = pack_batches(batches)
        return task_id, first.first_sequence, last.first_sequence + last.count - 1, bytes(payload)


def delete_settled(
    connection: sqlite3.Connection, chains: HashChains, rows: Sequence[tuple[int, int, bytes]]
) -> None:
    """Delete rows of `settled`, each with its rowid, its number and its hash."""
    chains.remove(connection, SETTLED, [Link(number, digest) for _, number, digest in rows])
    connection.executemany("DELETE FROM settled WHERE rowid = ?", [(row[0],) for row in rows])


def read_batches(
    connection: sqlite3.Connection,
    positions: Sequence[BatchPosition],
    path: str,
    cipher: Cipher | None,
) -> list[bytes]:
    """Read batches of commits, in the order of their positions.

    Raises:
        JournalUnavailableError: a commit is missing, or can't be decrypted.
    """
    if not positions:
        return []
    first, last = positions[0].commit_id, positions[-1].commit_id
    is_dense = last - first < 2 * len(positions)
    if cipher is None and not is_dense:
        return _read_each(connection, positions, path)
    if is_dense:
        # Most commits in the range contain the task's batches, so one query reads them all.
        rows = connection.execute(
            "SELECT id, payload FROM commits WHERE id BETWEEN ? AND ?", (first, last)
        )
    else:
        ids = json.dumps([position.commit_id for position in positions])
        rows = connection.execute(_SELECT_COMMITS, (ids,))
    payloads: dict[int, bytes] = dict(rows)
    if cipher is not None:
        payloads = {
            commit_id: cipher.decrypt(payload, commit_place(commit_id))
            for commit_id, payload in payloads.items()
        }
    try:
        return [
            payloads[commit_id][offset : offset + size_bytes]
            for commit_id, offset, size_bytes in positions
        ]
    except KeyError as error:
        raise JournalUnavailableError(path, DAMAGED) from error


def _read_each(
    connection: sqlite3.Connection, positions: Sequence[BatchPosition], path: str
) -> list[bytes]:
    members = ",".join(
        [f'"{commit_id}":{offset << 32 | size}' for commit_id, offset, size in positions]
    )
    batches = [sealed for (sealed,) in connection.execute(_SELECT_BATCHES, (f"{{{members}}}",))]
    if len(batches) != len(positions):
        raise JournalUnavailableError(path, DAMAGED)
    return batches
