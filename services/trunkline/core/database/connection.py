"""Opens connections to SQLite files. All files of Trunkline are opened here."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from trunkline.core.database.errors import translate_all_errors
from trunkline.core.private_files import find_database_problem
from trunkline.errors import JournalUnavailableError

Synchronous: TypeAlias = Literal["off", "normal", "full"]
"""What a commit survives: the death of the process, by chance a power failure (`off`); the same
without damage of the file (`normal`); a power failure (`full`), so that each commit waits for the
disk."""

BUSY_S: Final = 5.0
"""The seconds to wait for a lock of another process on a file."""
# The same for a file that is only read.
_READ_ONLY_BUSY_S: Final = 1.0


def connect(
    path: Path, *, busy_s: float = BUSY_S, isolation_level: Literal["DEFERRED"] | None = None
) -> sqlite3.Connection:
    """Open a file for reading and writing.

    The connection is in autocommit mode: a transaction begins with BEGIN. `busy_s` is the time in
    seconds to wait for a lock. With `isolation_level`, the sqlite3 module begins transactions.
    """
    # SQLite is built thread-safe. A lock or the order of calls prevents concurrent use of one
    # connection.
    return sqlite3.connect(
        path, isolation_level=isolation_level, check_same_thread=False, timeout=busy_s
    )


def connect_read_only(path: Path, *, busy_s: float = _READ_ONLY_BUSY_S) -> sqlite3.Connection:
    """Open a file for reading, which another process may have open.

    Raises:
        JournalUnavailableError: it is a link, or other users may change it.
        sqlite3.Error: it can't be opened.
    """
    check_access(path)
    address = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=busy_s)


def connect_in_memory() -> sqlite3.Connection:
    """Open a database in memory, in autocommit mode."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file for reading in a block, which another process may have open.

    Read such files only with SQLite: closing any other handle of a file drops all locks that this
    process has on it.

    Raises:
        JournalUnavailableError: the file can't be read, its content is damaged, it is a link, or
            other users may change it.
    """
    with translate_all_errors(path), contextlib.closing(connect_read_only(path)) as connection:
        yield connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block in a transaction: all of its writes are committed, or none if it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # If this fails, too, closing the connection ends the transaction.
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block within a transaction. If it raises, only its own writes are undone."""
    connection.execute("SAVEPOINT block")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK TO block")
            connection.execute("RELEASE block")
        raise
    connection.execute("RELEASE block")


def check_access(path: Path) -> None:
    """Check that a file is no link and that other users can't change it.

    Raises:
        JournalUnavailableError: it is one, or they can.
    """
    if problem := find_database_problem(path):
        raise JournalUnavailableError(str(path), problem)


def create_file(path: Path) -> None:
    """Create a file that only the user may read, if there is none, and check access to it.

    SQLite gives the files that it makes beside it the same mode.

    Raises:
        JournalUnavailableError: it can't be created, it is a link, or other users may change it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # An existing file is not opened: closing it would drop this process's locks on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        check_access(path)
    except OSError as error:
        problem = f"{error.strerror or error}; use another data directory"
        raise JournalUnavailableError(str(path), problem) from error
