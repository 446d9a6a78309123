"""Opens SQLite files, and translates SQLite's errors to JournalUnavailableError with advice."""

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.encryption import Cipher, Keyring
from trunkline.errors import JournalUnavailableError
from trunkline.private_files import find_database_problem

# The time to wait for a lock on a file, and on a file that is only read.
_BUSY_S: Final = 5.0
_READ_ONLY_BUSY_S: Final = 1.0
_WRITTEN_BY_OTHERS: Final = (
    "another process is writing to it; stop it or use another data directory"
)
_PROBLEMS: Final = {
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database; move it or use another data directory",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a copy or use another data directory",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk can't be read or written; check it, and the space on it",
    sqlite3.SQLITE_READONLY: "it can't be written; change its permissions or use another one",
    sqlite3.SQLITE_PERM: "it can't be written; change its permissions or use another one",
    sqlite3.SQLITE_CANTOPEN: (
        "it can't be opened; check that it and its folder can be read and written, "
        "or use another data directory"
    ),
    sqlite3.SQLITE_BUSY: _WRITTEN_BY_OTHERS,
    sqlite3.SQLITE_LOCKED: _WRITTEN_BY_OTHERS,
    sqlite3.SQLITE_PROTOCOL: "other processes lock it; stop them or use another data directory",
}
DAMAGED: Final = _PROBLEMS[sqlite3.SQLITE_CORRUPT]


def connect(path: Path) -> sqlite3.Connection:
    """Open a file for reading and writing."""
    # Autocommit: transactions begin with BEGIN. SQLite is built thread-safe, and a lock and the
    # order of calls prevent concurrent use of one connection.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)


def check_access(path: Path) -> None:
    """Check that a file is no link and that other users can't change it.

    Raises:
        JournalUnavailableError: it is one, or they can.
    """
    if problem := find_database_problem(path):
        raise JournalUnavailableError(str(path), problem)


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file for reading, which another process may have open.

    Read such files only with SQLite: closing any other handle of a file drops all locks that this
    process has on it.

    Raises:
        JournalUnavailableError: the file can't be read, its content is damaged, it is a link, or
            other users may change it.
    """
    check_access(path)
    with translate_all_errors(path):
        address = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, timeout=_READ_ONLY_BUSY_S
        )
        with contextlib.closing(connection):
            yield connection


def open_cipher(keyring: Keyring | None, journal_id: str, path: Path) -> Cipher | None:
    """Return the cipher of a journal. None: it is not encrypted."""
    if keyring is None or not keyring.is_encrypting:
        return None
    return keyring.cipher(f"journal {journal_id}", name=str(path))


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors and damaged content to JournalUnavailableError."""
    try:
        yield
    except sqlite3.Error as error:
        raise convert_error(path, error) from error
    except (DecodeError, struct.error, UnicodeDecodeError) as error:
        raise JournalUnavailableError(str(path), DAMAGED) from error


@contextlib.contextmanager
def translate_all_errors(path: Path) -> Iterator[None]:
    """Translate errors for a file that may not be a journal: wrong types count as damage, too."""
    try:
        with translate_errors(path):
            yield
    except (TypeError, ValueError, OverflowError) as error:
        raise JournalUnavailableError(str(path), DAMAGED) from error


def convert_error(path: Path, error: sqlite3.Error) -> JournalUnavailableError:
    """Return the JournalUnavailableError for an error of SQLite."""
    # The low byte is the primary result code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return JournalUnavailableError(str(path), _PROBLEMS.get(code, f"SQLite says: {error}"))
