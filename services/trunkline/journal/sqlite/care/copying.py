"""Copies SQLite files while they are in use, whole as of one moment."""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from trunkline.journal.sqlite.connection import looking, translated
from trunkline.journal.sqlite.schema import disown

_MAGIC: Final = b"SQLite format 3\x00"


def sqlite_files(folder: Path) -> list[Path]:
    """Return all SQLite files below a folder, whatever their names, and those that should be some.

    Nobody here has them open.
    """
    return sorted(path for path in folder.rglob("*") if path.is_file() and _is_database(path))


def back_up(path: Path, target: Path) -> None:
    """Copy a file, which others may be writing, into one that is not there yet.

    A copy of a journal holds every event that was acknowledged before. It counts as lost by its
    owner: what opens it raises the epoch, so that readers of what came later are told so.

    Raises:
        JournalUnavailableError: either can't be read or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(looking(path))
        opened.enter_context(translated(target))
        copy = sqlite3.connect(target, isolation_level=None)
        opened.enter_context(contextlib.closing(copy))
        source.backup(copy)
        # One file, which a plain copy of it copies whole.
        copy.execute("PRAGMA journal_mode = DELETE")
        disown(copy)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    # Of one whose beginning is damaged only the name tells; an empty one holds nothing yet.
    return begin == _MAGIC or (path.suffix == ".db" and begin != b"")
