"""Opens SQLite's files, and turns what SQLite raises into the one error that says what to do."""

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.errors import JournalUnavailableError

_BUSY_S: Final = 5.0
_LOOK_S: Final = 1.0
_WRITTEN_BY_OTHERS: Final = (
    "another process is writing to it; stop it or use another data directory"
)
_PROBLEMS: Final = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite database; move it away or use another data directory",
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
    sqlite3.SQLITE_PROTOCOL: "others keep it locked; stop them or use another data directory",
}
DAMAGED: Final = _PROBLEMS[sqlite3.SQLITE_CORRUPT]


def connect(path: Path) -> sqlite3.Connection:
    """Open a file to read and write it."""
    # Autocommit: every transaction is begun in so many words. SQLite is built thread-safe, and the
    # lock and the order of calls keep one connection from doing two things at once.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that belongs to somebody else, only to read it.

    Never open it by other means: closing any handle on it drops the locks of this process.
    """
    with translate_all_errors(path):
        address = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_LOOK_S)
        with contextlib.closing(connection):
            yield connection


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into JournalUnavailableError, and damaged content as well."""
    try:
        yield
    except sqlite3.Error as error:
        raise convert_error(path, error) from error
    except (DecodeError, struct.error, UnicodeDecodeError) as error:
        raise JournalUnavailableError(str(path), DAMAGED) from error


@contextlib.contextmanager
def translate_all_errors(path: Path) -> Iterator[None]:
    """The same for a file that may hold anything: also what has the wrong type is damage."""
    try:
        with translate_errors(path):
            yield
    except (TypeError, ValueError, OverflowError) as error:
        raise JournalUnavailableError(str(path), DAMAGED) from error


def convert_error(path: Path, error: sqlite3.Error) -> JournalUnavailableError:
    """Return what an error of SQLite means for whoever uses the journal."""
    # The low byte; the rest tells apart what needs the same answer.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return JournalUnavailableError(str(path), _PROBLEMS.get(code, f"SQLite says: {error}"))
