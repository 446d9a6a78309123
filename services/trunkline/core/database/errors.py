"""Translates the errors of SQLite to JournalUnavailableError, with advice."""

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.errors import JournalDamagedError, JournalUnavailableError

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
_DAMAGED: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
DAMAGED: Final = _PROBLEMS[sqlite3.SQLITE_CORRUPT]
"""The problem of a file whose content can't be read."""


# A class instead of a generator: every commit and every read enters such a block.
class _TranslatedErrors:
    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if isinstance(exc_val, sqlite3.Error):
            raise convert_error(self._path, exc_val) from exc_val
        if isinstance(exc_val, DecodeError | struct.error | UnicodeDecodeError):
            raise JournalDamagedError(str(self._path), DAMAGED) from exc_val


def translate_errors(path: Path) -> AbstractContextManager[None]:
    """Translate errors of SQLite, and of damaged content, to JournalUnavailableError in a block."""
    return _TranslatedErrors(path)


@contextlib.contextmanager
def translate_all_errors(path: Path) -> Iterator[None]:
    """Translate errors of a file that may have another schema: wrong types count as damage, too."""
    try:
        with translate_errors(path):
            yield
    except (TypeError, ValueError, OverflowError) as error:
        raise JournalDamagedError(str(path), DAMAGED) from error


def convert_error(path: Path, error: sqlite3.Error) -> JournalUnavailableError:
    """Return the JournalUnavailableError for an error of SQLite."""
    # The low byte is the primary result code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    error_class = JournalDamagedError if code in _DAMAGED else JournalUnavailableError
    return error_class(str(path), _PROBLEMS.get(code, f"SQLite says: {error}"))
