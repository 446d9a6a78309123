"""Backs up SQLite files in use, and applies retention to journals that no host has open."""

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.encryption import Keyring
from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.retention import Compactor, Retention
from trunkline.journal.sqlite.connection import open_read_only, translate_errors
from trunkline.journal.sqlite.schema import mark_abandoned
from trunkline.journal.sqlite.store import SqliteStore

_MAGIC: Final = b"SQLite format 3\x00"


def find_sqlite_files(folder: Path) -> list[Path]:
    """Return the SQLite files below a folder, also those with a damaged header and a name in `.db`.

    This process must not have them open: reading a file drops SQLite's locks on it.
    """
    return sorted(path for path in folder.rglob("*") if path.is_file() and _is_database(path))


def back_up_file(path: Path, target: Path) -> None:
    """Copy a SQLite file to a new file. Other processes may write to it meanwhile.

    A copy of a journal has all events that were acknowledged before the call. It looks abandoned by
    its owner, so opening it increases the epoch. Cursors of events after the copy are then refused.

    Raises:
        JournalUnavailableError: the file can't be read, or the copy can't be written.
        FileExistsError: the target exists.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(open_read_only(path))
        opened.enter_context(translate_errors(target))
        copy = sqlite3.connect(target, isolation_level=None)
        opened.enter_context(contextlib.closing(copy))
        source.backup(copy)
        # Without a write-ahead log, the copy is a single file.
        copy.execute("PRAGMA journal_mode = DELETE")
        mark_abandoned(copy)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.read(len(_MAGIC))
    # An empty file is a database without content.
    return header == _MAGIC or (path.suffix == ".db" and header != b"")


# The amount of work in one write.
_STEP_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The numbers of tasks that were compacted, deleted, and skipped because they are damaged."""

    compacted: int
    deleted: int
    damaged: int


def prune_journal(path: Path, retention: Retention, keyring: Keyring | None = None) -> PruneResult:
    """Compact and delete all tasks whose retention time is over, and free the disk space.

    A journal that waits for a takeover still waits for one afterwards.

    Raises:
        JournalUnavailableError: a process has it open, or it can't be read or written.
    """
    store = SqliteStore.open(path, keyring=keyring)
    try:
        compactor = Compactor(store, retention)
        damaged = 0
        while store.has_backlog() or _scan(compactor):
            if store.has_backlog():
                store.settle(budget_bytes=_STEP_BYTES)
                continue
            try:
                step = compactor.next_step(_STEP_BYTES)
            except (JournalUnavailableError, InvalidAgentResponseError):
                damaged += 1
                continue
            if step is not None:
                step.write()
                compactor.confirm(step)
        if compactor.compacted_count or compactor.deleted_count:
            store.vacuum()
        return PruneResult(compactor.compacted_count, compactor.deleted_count, damaged)
    finally:
        store.close(for_takeover=store.was_lost)


def list_task_ids(path: Path) -> set[str]:
    """Return the task ids of a journal.

    Raises:
        JournalUnavailableError: it can't be read.
    """
    with open_read_only(path) as connection:
        return {task_id for (task_id,) in connection.execute("SELECT task_id FROM tasks")}


def _scan(compactor: Compactor) -> bool:
    """Find tasks whose retention time is over. Return whether there is work."""
    compactor.scan()
    return compactor.has_work
