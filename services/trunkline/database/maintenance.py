"""Finds, checks and copies SQLite files, which other processes may have open."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trunkline.database.connection import connect, open_read_only
from trunkline.database.errors import translate_errors
from trunkline.errors import JournalUnavailableError

_MAGIC: Final = b"SQLite format 3\x00"


def find_files(folder: Path) -> list[Path]:
    """Return the SQLite files below a folder, also those with a damaged header and a name in `.db`.

    This process must not have them open: reading a file drops SQLite's locks on it.
    """
    return sorted(path for path in folder.rglob("*") if path.is_file() and _is_database(path))


def find_damage(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what SQLite finds wrong with the structure of an open file."""
    for (line,) in connection.execute("PRAGMA integrity_check").fetchall():
        if line != "ok":
            yield f"SQLite: {line}"


def is_sound(path: Path) -> bool:
    """Return whether the structure of a file is undamaged."""
    try:
        with open_read_only(path) as connection:
            return next(find_damage(connection), None) is None
    except JournalUnavailableError:
        return False


@contextlib.contextmanager
def copy_file(path: Path, target: Path) -> Iterator[sqlite3.Connection]:
    """Copy a file to a new file, as it is now, and give the block the copy to change it.

    Other processes may write to the file meanwhile.

    Raises:
        JournalUnavailableError: the file can't be read, or the copy can't be written.
        FileExistsError: the target exists.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with (
        open_read_only(path) as source,
        translate_errors(target),
        contextlib.closing(connect(target)) as copy,
    ):
        source.backup(copy)
        # Without a write-ahead log, the copy is a single file.
        copy.execute("PRAGMA journal_mode = DELETE")
        yield copy


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.read(len(_MAGIC))
    # An empty file is a database without content.
    return header == _MAGIC or (path.suffix == ".db" and header != b"")
