"""Moves what SQLite's log holds into the file, so that the log begins anew and stays short."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.sqlite.connection import connect, convert_error, translate_errors

# The log is moved when it is about this long: 8 MB.
_LONG_PAGES: Final = 2000
_PAGE_BYTES: Final = 4096
# Pages that a write touches beside those its content fills, roughly.
_PAGES_OF_A_WRITE: Final = 2


class Checkpointer:
    """Checkpoints apart from commits: SQLite by itself would make one commit in many wait for it.

    It may run in a thread while commits go on. The log begins anew only once all of it was moved,
    which a commit in between prevents: then what is left, a little, is moved with nobody writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._pages = 0

    def add_written(self, size_bytes: int) -> bool:
        """Count what was written; tell whether the log is long and it is time to move it."""
        self._pages += _PAGES_OF_A_WRITE + size_bytes // _PAGE_BYTES
        return self._pages >= _LONG_PAGES

    def run(self) -> bool:
        """Move what the log holds; tell whether that was all. JournalUnavailableError."""
        counted = self._pages
        with translate_errors(self._path):
            _, pages, moved_pages = self._connection.execute(
                "PRAGMA wal_checkpoint(PASSIVE)"
            ).fetchone()
        # SQLite counts up to where the log ended when it began.
        is_all: bool = pages == moved_pages and self._pages == counted
        if is_all:
            self._pages = 0
        return is_all

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


_INSERT_COMMIT: Final = (
    "INSERT INTO commits (payload) SELECT ? WHERE EXISTS (SELECT 1 FROM meta WHERE epoch = ?)"
)
_MOVED: Final = (
    "its files were moved, replaced or deleted while it was open; what is written now would be "
    "lost: put them back, or start again"
)

Synchronous = Literal["normal", "full"]


class SqliteWriter:
    """All writes of one journal, one at a time.

    What writes holds the lock: `renew` comes from the loop while a thread may be committing.
    """

    def __init__(self, path: Path, epoch: int, synchronous: Synchronous, journal_id: str) -> None:
        """Open the connection; the journal is claimed already."""
        self._path = path
        self._epoch = epoch
        self._journal_id = journal_id
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self.connection = self._connect()
        # Where SQLite keeps them, whatever the current folder is later.
        self._file = os.path.realpath(path)
        self._log_file = f"{self._file}-wal"
        # A Path would cost twice as much.
        self._inode = os.stat(self._file).st_ino  # noqa: PTH116
        self._log_inode = os.stat(self._log_file).st_ino  # noqa: PTH116

    def insert_commit(self, payload: bytearray) -> int:
        """Write one row of `commits`, and return its id. FencedError after a takeover.

        The epoch is checked in the same statement: most commits are this one alone. Whether the
        files are still there is left to `transaction`: no task begins or ends without.
        """
        with self._lock:
            try:
                if self.connection.in_transaction:
                    self._mend()
                return self._insert(payload)
            except sqlite3.Error as error:
                raise convert_error(self._path, error) from error

    @contextlib.contextmanager
    def transaction(self, payload: bytearray | None = None) -> Iterator[int]:
        """All or nothing, and nothing once somebody has taken over.

        Yields the id of the row of `commits` that a payload was written to.
        """
        with self._lock, translate_errors(self._path):
            if self.connection.in_transaction:
                self._mend()
            # SQLite itself goes on writing into files that were deleted.
            self._check(self._log_file, self._log_inode)
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                commit_id = 0
                if payload is not None:
                    commit_id = self._insert(payload)
                elif self._stored_epoch() != self._epoch:
                    raise FencedError(self._journal_id)
                yield commit_id
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def check_file(self) -> None:
        """See that the file is still there. JournalUnavailableError if not."""
        self._check(self._file, self._inode)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[sqlite3.Connection]:
        """The connection while nobody else uses it, without a look at who owns the journal."""
        with self._lock, translate_errors(self._path):
            yield self.connection

    def _check(self, file: str, inode: int) -> None:
        try:
            is_there = os.stat(file).st_ino == inode  # noqa: PTH116
        except OSError:
            is_there = False
        if not is_there:
            raise JournalUnavailableError(str(self._path), _MOVED)

    def _insert(self, payload: bytearray) -> int:
        cursor = self.connection.execute(_INSERT_COMMIT, (payload, self._epoch))
        if not cursor.rowcount or cursor.lastrowid is None:
            raise FencedError(self._journal_id)
        return cursor.lastrowid

    def _stored_epoch(self) -> int:
        epoch: int = self.connection.execute("SELECT epoch FROM meta").fetchone()[0]
        return epoch

    def _roll_back(self) -> None:
        """Leave no transaction open; if even that fails, the next write mends the connection."""
        with contextlib.suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _mend(self) -> None:
        """Replace a connection that is stuck in a transaction: closing it ends that."""
        mended = self._connect()
        self.connection.close()
        self.connection = mended

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self._path)
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
            # A log that got long once is cut back when it begins anew; see `Checkpointer`.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {16 * 1024 * 1024}")
        except BaseException:
            connection.close()
            raise
        return connection
