"""The connections that write to a journal's file: one for commits, one for checkpoints."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from trunkline.core.database import Synchronous, connect, convert_error, translate_errors
from trunkline.errors import FencedError, JournalUnavailableError

PAGE_BYTES: Final = 2048
"""The size of a page of a new file. A commit writes each page that it changes, and most commits
have a small event for each of many tasks, whose events are on pages of their own."""
# The length of the write-ahead log at which a checkpoint is due: 4 MB. In files of earlier
# versions, whose pages are larger, it is 8 MB.
_CHECKPOINT_PAGES: Final = 2000
# The estimated number of pages that a write changes besides those of its content.
_EXTRA_PAGES: Final = 2


class Checkpointer:
    """Runs checkpoints on a separate connection. SQLite's automatic ones would delay some commits.

    A checkpoint may run in a thread while commits run. SQLite reuses the log only after a
    checkpoint that moves all of it, which a concurrent commit prevents. The caller then runs
    another checkpoint without concurrent writes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._pages = 0

    def add_written(self, size_bytes: int, *, tasks: int = 0) -> bool:
        """Count a write of this size. Return whether the log is long enough for a checkpoint.

        `tasks` is the number of tasks with new events, each of which changes a page of its own.
        """
        self._pages += _EXTRA_PAGES + tasks + size_bytes // PAGE_BYTES
        return self._pages >= _CHECKPOINT_PAGES

    def run(self) -> bool:
        """Move the log into the file. Return whether all of it was moved.

        Raises:
            JournalUnavailableError: the file can't be read or written.
        """
        pages_before = self._pages
        with translate_errors(self._path):
            _, pages, moved_pages = self._connection.execute(
                "PRAGMA wal_checkpoint(PASSIVE)"
            ).fetchone()
        # SQLite counts the pages up to the end of the log at the start of the checkpoint.
        is_all: bool = pages == moved_pages and self._pages == pages_before
        if is_all:
            self._pages = 0
        return is_all

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


EventRow: TypeAlias = tuple[int, int, bytes]
"""A row of `events`: the number of the task, the last sequence of a batch, and its body."""

# One statement inserts up to this many rows. Its text depends on the number of rows, so the limit
# keeps the number of prepared statements below the size of the connection's cache.
_ROWS_PER_STATEMENT: Final = 64
_MOVED: Final = (
    "its files were moved, replaced or deleted while it was open, so that further writes would be "
    "lost; put them back, or start again"
)


@cache
def _insert_statement(row_count: int) -> str:
    """Return a statement that inserts events if the journal still has the epoch of its owner."""
    values = ", ".join(["(?, ?, ?)"] * row_count)
    return " ".join(
        (
            "INSERT INTO events SELECT * FROM (VALUES",
            values,
            ") WHERE EXISTS (SELECT 1 FROM meta WHERE epoch = ?)",
        )
    )


class SqliteWriter:
    """Writes to one journal's file. The caller makes one write at a time.

    After a takeover, writes raise FencedError.
    """

    def __init__(self, path: Path, epoch: int, synchronous: Synchronous, journal_id: str) -> None:
        """Open the connection. The journal must be claimed already."""
        self._path = path
        self._epoch = epoch
        self._journal_id = journal_id
        self._synchronous = synchronous
        self.connection = self._connect()
        # Absolute paths: the current folder may change later.
        self._file = os.path.realpath(path)
        self._log_file = f"{self._file}-wal"
        # Path.stat would cost twice as much.
        self._inode = os.stat(self._file).st_ino  # noqa: PTH116
        self._log_inode = os.stat(self._log_file).st_ino  # noqa: PTH116

    def insert_events(self, rows: Sequence[EventRow]) -> None:
        """Write rows of `events` without a further change.

        Most commits are this single statement, which checks the epoch, too. It does not check that
        the log is still in its place. `transaction` does, and each task begins and ends with one.

        Raises:
            FencedError: another process has taken over.
            JournalUnavailableError: the file can't be written.
        """
        if len(rows) > _ROWS_PER_STATEMENT:
            with self.transaction(rows):
                return
        try:
            if self.connection.in_transaction:
                self._reconnect()
            self._insert(rows)
        except sqlite3.Error as error:
            raise convert_error(self._path, error) from error

    @contextlib.contextmanager
    def transaction(self, events: Sequence[EventRow] = ()) -> Iterator[sqlite3.Connection]:
        """Run a transaction, which begins with the insertion of these events.

        Raises:
            FencedError: another process has taken over.
            JournalUnavailableError: the file can't be written, or its log was moved.
        """
        with translate_errors(self._path):
            if self.connection.in_transaction:
                self._reconnect()
            # If the log was deleted or replaced, SQLite would still write to the old one.
            self._check(self._log_file, self._log_inode)
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                if not events and self._stored_epoch() != self._epoch:
                    raise FencedError(self._journal_id)
                for begin in range(0, len(events), _ROWS_PER_STATEMENT):
                    self._insert(events[begin : begin + _ROWS_PER_STATEMENT])
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def check_file(self) -> None:
        """Check that the file is still in its place.

        Raises:
            JournalUnavailableError: it was moved, replaced or deleted.
        """
        self._check(self._file, self._inode)

    def _check(self, file: str, inode: int) -> None:
        try:
            is_in_place = os.stat(file).st_ino == inode  # noqa: PTH116
        except OSError:
            is_in_place = False
        if not is_in_place:
            raise JournalUnavailableError(str(self._path), _MOVED)

    def _insert(self, rows: Sequence[EventRow]) -> None:
        values = (*chain.from_iterable(rows), self._epoch)
        if not self.connection.execute(_insert_statement(len(rows)), values).rowcount:
            raise FencedError(self._journal_id)

    def _stored_epoch(self) -> int:
        epoch: int = self.connection.execute("SELECT epoch FROM meta").fetchone()[0]
        return epoch

    def _roll_back(self) -> None:
        """End an open transaction. If that fails, the next write replaces the connection."""
        with contextlib.suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _reconnect(self) -> None:
        """Replace a connection that is stuck in a transaction. Closing it ends the transaction."""
        replacement = self._connect()
        self.connection.close()
        self.connection = replacement

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self._path)
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
            # SQLite truncates a long log when it restarts it after a checkpoint; see
            # `Checkpointer`.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {16 * 1024 * 1024}")
        except BaseException:
            connection.close()
            raise
        return connection
