"""Keeps a journal in one SQLite file: one row for each commit, settled by task once a task ends."""

import contextlib
import itertools
import os
import sqlite3
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.clock import Clock
from trunkline.journal.events import header_of
from trunkline.journal.sqlite.connection import connect, looking, translated
from trunkline.journal.sqlite.directory import Directory, Place
from trunkline.journal.sqlite.schema import Claim, claim, note, noted, release, tenure_of
from trunkline.journal.store import CommitGroup, KeyRecord, TaskFilter, TaskPage, TaskRow

_FRAME: Final = struct.Struct(">I")
# Rows of `settled` are about this big: few enough to find, small enough to read a part of.
_CHUNK_BYTES: Final = 16 * 1024
# In one settling step, whatever the budget: it runs between two turns of the loop.
_SETTLED_TASKS: Final = 16
_DELETED_ROWS: Final = 128
_RELEASED_BATCHES: Final = 512

_INSERT_COMMIT: Final = (
    "INSERT INTO commits (payload) SELECT ? WHERE EXISTS (SELECT 1 FROM meta WHERE epoch = ?)"
)
_COLUMNS: Final = (
    "task_id, context_id, account, agent, state, status_time_ns, create_time_ns, "
    "parent_task_id, head, metadata, first_available, ended_ns"
)
# How long a killed process may take to be gone.
_KILL_S: Final = 10.0


class SqliteStore:
    """A `JournalStore` on SQLite in WAL mode.

    With `normal`, what was committed survives the death of the process; with `full`, also that of
    the machine, and each commit waits for the disk: commit in a thread then.
    """

    def __init__(
        self, path: Path, claimed: Claim, *, write: sqlite3.Connection, read: sqlite3.Connection
    ) -> None:
        """Use `open`."""
        self._path = path
        self._write = write
        self._read = read
        # What writes holds it: `renew` comes from the loop while a thread may be committing.
        self._write_lock = threading.Lock()
        self.id = claimed.journal_id
        self.epoch = claimed.epoch
        self.clock = Clock(noted(read))
        self._directory = Directory()
        # Tasks that ended, not settled yet; how far the first of them has come.
        self._backlog: deque[str] = deque()
        self._settled_to = 0
        # Commits that nobody needs. They are deleted one write later: a reader that looked a
        # place up has done with it by then.
        self._free: deque[int] = deque()
        self._load()

    @classmethod
    def open(cls, path: Path, *, synchronous: Literal["normal", "full"] = "normal") -> Self:
        """Open a journal's file, or make one, and become its only owner.

        Raises:
            JournalUnavailableError: it can't be, and why.
        """
        _make_file(path)
        with translated(path), contextlib.ExitStack() as undo:
            connection = connect(path)
            undo.callback(connection.close)
            connection.execute("PRAGMA journal_mode = WAL")
            # Who owns it since which epoch must outlive the machine, too: else two lives of the
            # journal could write different events under the same epoch.
            connection.execute("PRAGMA synchronous = FULL")
            claimed = claim(connection, path)
            undo.callback(release, connection, claimed.epoch)
            connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
            reading = connect(path)
            undo.callback(reading.close)
            store = cls(path, claimed, write=connection, read=reading)
            undo.pop_all()
            return store

    @classmethod
    def take_over(cls, path: Path, *, synchronous: Literal["normal", "full"] = "normal") -> Self:
        """Open the journal of a process that let its lease run out, and kill that process first.

        It blocks until that process is gone. Of several who try at once, one succeeds.

        Raises:
            JournalUnavailableError: the lease holds, the process doesn't end, another one was
                quicker, or the file can't be opened.
        """
        with looking(path) as connection:
            tenure = tenure_of(connection, path)
        owner = tenure.owner
        if not tenure.is_free:
            if tenure.lost_for_s < 0:
                problem = f"process {owner.pid} has it; its lease holds {-tenure.lost_for_s:.1f} s"
                raise JournalUnavailableError(str(path), problem)
            if owner.is_this_process:
                raise JournalUnavailableError(str(path), "this process has it open already")
            if not owner.end(within_s=_KILL_S):
                problem = f"process {owner.pid} has it and can't be killed; kill it, then try again"
                raise JournalUnavailableError(str(path), problem)
        return cls.open(path, synchronous=synchronous)

    def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction; see `JournalStore`."""
        payload = bytearray()
        places = []
        for batch in group.batches:
            payload += _FRAME.pack(len(batch.sealed))
            places.append((len(payload), len(batch.sealed)))
            payload += batch.sealed
        if group.created or group.changed or group.keys:
            with self._transaction():
                commit_id = self._insert_commit(payload)
                self._write_rows(group)
        else:
            with self._write_lock, translated(self._path):
                commit_id = self._insert_commit(payload)
        for batch, (offset, size_bytes) in zip(group.batches, places, strict=True):
            place = Place(commit_id, offset, size_bytes)
            self._directory.add(batch.task_id, batch.first_sequence, batch.count, place)
        self._backlog.extend(row.task_id for row in group.changed.values() if row.is_ended)

    def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return batches that end behind `after`; see `JournalStore`."""
        with translated(self._path):
            places = self._directory.find(task_id, after, limit_bytes=limit_bytes)
            if places is not None:
                return [_slice(self._read, place) for place in places]
            return self._read_settled(task_id, after, limit_bytes)

    def find_row(self, task_id: str) -> TaskRow | None:
        """Return the row of a task."""
        with translated(self._path):
            found = self._read.execute(
                " ".join(("SELECT", _COLUMNS, "FROM tasks WHERE task_id = ?")), (task_id,)
            ).fetchone()
        return None if found is None else self._row(found)

    def find_key(self, key: str, *, now_ns: int) -> KeyRecord | None:
        """Return what a key stands for, unless it has expired."""
        with translated(self._path):
            found = self._read.execute(
                "SELECT key, content_hash, task_id, expires_ns FROM keys "
                "WHERE key = ? AND expires_ns > ?",
                (key, now_ns),
            ).fetchone()
        return None if found is None else KeyRecord(*found)

    def list_rows(
        self, wanted: TaskFilter, *, limit: int, behind: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return a page of rows; see `JournalStore`."""
        where, values = _conditions(wanted)
        with translated(self._path):
            (total,) = self._read.execute(
                " ".join(("SELECT count(*) FROM tasks WHERE", where)), values
            ).fetchone()
            if behind is not None:
                where += " AND (status_time_ns < ? OR (status_time_ns = ? AND task_id > ?))"
                values += [behind[0], behind[0], behind[1]]
            order = "ORDER BY status_time_ns DESC, task_id LIMIT ?"
            rows = self._read.execute(
                " ".join(("SELECT", _COLUMNS, "FROM tasks WHERE", where, order)), [*values, limit]
            ).fetchall()
        return TaskPage([self._row(row) for row in rows], total)

    def unfinished(self) -> list[TaskRow]:
        """Return the rows of all tasks that have not ended, the oldest first."""
        return [row for row in self._unsettled() if not row.is_ended]

    def has_backlog(self) -> bool:
        """Tell whether there is anything to settle or to delete."""
        return bool(self._backlog or self._free or self._directory.has_dropped)

    def settle(self, *, budget_bytes: int) -> None:
        """Move some of what has ended into rows of its own, and delete what is free."""
        deleted = list(itertools.islice(self._free, _DELETED_ROWS))
        chunks: list[tuple[str, int, int, bytes]] = []
        ended: list[str] = []
        position = self._settled_to
        with self._transaction():
            for task_id in list(itertools.islice(self._backlog, _SETTLED_TASKS)):
                while budget_bytes > 0 and (chunk := self._chunk(task_id, position)):
                    chunks.append(chunk)
                    position = chunk[2]
                    budget_bytes -= len(chunk[3])
                if position < (self._directory.head(task_id) or 0):
                    break
                ended.append(task_id)
                position = 0
            self._write.executemany("INSERT INTO settled VALUES (?, ?, ?, ?)", chunks)
            self._write.executemany(
                "UPDATE tasks SET stage = 1 WHERE task_id = ?", [(one,) for one in ended]
            )
            if deleted:
                # The time of the latest event may have stood there alone.
                note(self._write, self.clock, self.epoch)
            self._write.executemany("DELETE FROM commits WHERE id = ?", [(i,) for i in deleted])
        self._settled_to = position
        for _ in ended:
            self._backlog.popleft()
        for _ in deleted:
            self._free.popleft()
        self._directory.drop(ended)
        self._free.extend(self._directory.release(_RELEASED_BATCHES))

    def renew(self, lease_s: float) -> None:
        """Let the lease hold from now on, and drop some of the keys that expired."""
        with self._transaction():
            until_s = time.monotonic() + lease_s
            self._write.execute("UPDATE meta SET lease_until_s = ?", (until_s,))
            note(self._write, self.clock, self.epoch)
            self._write.execute(
                "DELETE FROM keys WHERE rowid IN "
                "(SELECT rowid FROM keys WHERE expires_ns <= ? LIMIT 1000)",
                (self.clock.age_ns(),),
            )

    def close(self) -> None:
        """Give the journal back: the next owner needs no takeover."""
        with self._write_lock, translated(self._path):
            try:
                note(self._write, self.clock, self.epoch)
                release(self._write, self.epoch)
            finally:
                self._read.close()
                self._write.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, and nothing once somebody has taken over."""
        with self._write_lock, translated(self._path):
            self._write.execute("BEGIN IMMEDIATE")
            try:
                if self._write.execute("SELECT epoch FROM meta").fetchone()[0] != self.epoch:
                    raise FencedError(self.id)
                yield
                self._write.execute("COMMIT")
            except BaseException:
                if self._write.in_transaction:
                    self._write.execute("ROLLBACK")
                raise

    def _insert_commit(self, payload: bytearray) -> int:
        """The epoch is checked in the same statement: most commits are this one alone."""
        cursor = self._write.execute(_INSERT_COMMIT, (payload, self.epoch))
        if not cursor.rowcount or cursor.lastrowid is None:
            raise FencedError(self.id)
        return cursor.lastrowid

    def _write_rows(self, group: CommitGroup) -> None:
        if group.created:
            self._write.executemany(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
                [_values(row) for row in group.created.values()],
            )
        if group.changed:
            self._write.executemany(
                "UPDATE tasks SET state = ?, status_time_ns = ?, head = ?, metadata = ?, "
                "ended_ns = ? WHERE task_id = ?",
                [
                    (
                        one.state,
                        one.status_time_ns,
                        one.head,
                        one.metadata,
                        one.ended_ns,
                        one.task_id,
                    )
                    for one in group.changed.values()
                ],
            )
        if group.keys:
            self._write.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)",
                [(one.key, one.content_hash, one.task_id, one.expires_ns) for one in group.keys],
            )

    def _load(self) -> None:
        """Find the batches of all unsettled tasks again, and what no task needs.

        What was settled of them is dropped: settling begins anew, perhaps with rows of other sizes.
        """
        self._write.execute(
            "DELETE FROM settled WHERE task_id IN (SELECT task_id FROM tasks WHERE stage = 0)"
        )
        unsettled = {row.task_id for row in self._unsettled()}
        header = None
        for commit_id, payload in self._read.execute("SELECT id, payload FROM commits ORDER BY id"):
            for offset, size_bytes in _frames(payload):
                header = header_of(payload[offset : offset + size_bytes])
                if header.task_id in unsettled:
                    place = Place(commit_id, offset, size_bytes)
                    self._directory.add(header.task_id, header.first_sequence, header.count, place)
            if not self._directory.has_commit(commit_id):
                self._free.append(commit_id)
        if header is not None:
            self.clock.saw(header.time.ToNanoseconds())
        self._backlog.extend(row.task_id for row in self._unsettled() if row.is_ended)

    def _unsettled(self) -> list[TaskRow]:
        with translated(self._path):
            found = self._read.execute(
                " ".join(("SELECT", _COLUMNS, "FROM tasks WHERE stage = 0 ORDER BY create_time_ns"))
            ).fetchall()
        return [self._row(row) for row in found]

    def _row(self, found: tuple[Any, ...]) -> TaskRow:
        """The head of an unsettled task is known here alone: not every commit writes rows."""
        row = TaskRow(*found)
        head = self._directory.head(row.task_id)
        return row if head is None or head == row.head else replace(row, head=head)

    def _chunk(self, task_id: str, after: int) -> tuple[str, int, int, bytes] | None:
        """The next row of `settled` for a task, if anything is left."""
        places = self._directory.find(task_id, after, limit_bytes=_CHUNK_BYTES)
        if not places:
            return None
        batches = [_slice(self._write, place) for place in places]
        first, last = header_of(batches[0]), header_of(batches[-1])
        payload = b"".join(_FRAME.pack(len(batch)) + batch for batch in batches)
        return task_id, first.first_sequence, last.first_sequence + last.count - 1, payload

    def _read_settled(self, task_id: str, after: int, limit_bytes: int) -> list[bytes]:
        batches: list[bytes] = []
        rows = self._read.execute(
            "SELECT payload FROM settled WHERE task_id = ? AND last_sequence > ? "
            "ORDER BY first_sequence",
            (task_id, after),
        )
        with contextlib.closing(rows):
            for (payload,) in rows:
                for offset, size_bytes in _frames(payload):
                    sealed = payload[offset : offset + size_bytes]
                    header = header_of(sealed)
                    if header.first_sequence + header.count - 1 <= after:
                        continue
                    limit_bytes -= size_bytes
                    if batches and limit_bytes < 0:
                        return batches
                    batches.append(sealed)
        return batches


def _make_file(path: Path) -> None:
    """Make the file if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # It holds what people wrote: nobody else may read it. SQLite's other files follow suit.
        # One that is there is not touched: closing it would drop the locks that this process has.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        problem = f"{error.strerror or error}; use another data directory"
        raise JournalUnavailableError(str(path), problem) from error


def _slice(connection: sqlite3.Connection, place: Place) -> bytes:
    # SQL counts bytes from 1.
    found = connection.execute(
        "SELECT substr(payload, ?, ?) FROM commits WHERE id = ?",
        (place.offset + 1, place.size_bytes, place.commit_id),
    ).fetchone()
    sealed: bytes = found[0]
    return sealed


def _frames(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the batches in a payload."""
    offset = 0
    while offset < len(payload):
        (size_bytes,) = _FRAME.unpack_from(payload, offset)
        offset += _FRAME.size
        yield offset, size_bytes
        offset += size_bytes


def _values(row: TaskRow) -> tuple[object, ...]:
    """In the order of _COLUMNS."""
    return (
        row.task_id,
        row.context_id,
        row.account,
        row.agent,
        row.state,
        row.status_time_ns,
        row.create_time_ns,
        row.parent_task_id,
        row.head,
        row.metadata,
        row.first_available,
        row.ended_ns,
    )


def _conditions(wanted: TaskFilter) -> tuple[str, list[object]]:
    """What a list's rows must meet, as SQL; only what is asked for, so that an index serves it."""
    conditions = {
        "account = ?": wanted.account,
        "agent = ?": wanted.agent or None,
        "context_id = ?": wanted.context_id or None,
        "state = ?": wanted.state,
        "status_time_ns >= ?": wanted.status_after_ns,
    }
    asked = {text: value for text, value in conditions.items() if value is not None}
    return " AND ".join(asked), list(asked.values())
