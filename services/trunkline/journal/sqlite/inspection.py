"""Reads journals that this process does not own, and deletes empty ones."""

import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from trunkline.core.database import (
    FileLock,
    connect,
    find_holder,
    has_lock,
    open_read_only,
    translate_all_errors,
)
from trunkline.core.task_states import INTERRUPTED, TERMINAL
from trunkline.errors import JournalUnavailableError
from trunkline.journal.catalog import OrphanedJournal
from trunkline.journal.sqlite.schema import claim_journal, read_ownership, release_journal
from trunkline.journal.store import LIVE_WEBHOOKS

logger = logging.getLogger(__name__)


def find_orphaned_journals(
    folder: Path, *, leases: dict[Path, float] | None = None, unreadable: set[Path] | None = None
) -> list[OrphanedJournal]:
    """Return the journals in a folder that can be taken over, the longest expired first.

    It changes nothing. It skips files that can't be read; `trunkline data check` shows more.
    `leases` and `unreadable` are for repeated calls. This function stores the end of each lease in
    `leases`, by the monotonic clock, and does not open the journal again before that time. Without
    a valid lease, the end is 0.
    It logs a file that can't be read once, and adds it to `unreadable`.
    """
    leases = {} if leases is None else leases
    unreadable = set() if unreadable is None else unreadable
    orphans: list[OrphanedJournal] = []
    paths = sorted(folder.glob("*.db"))
    for path in leases.keys() - set(paths):
        del leases[path]
    for path in paths:
        if leases.get(path, 0.0) > time.monotonic():
            continue
        leases[path] = 0.0
        try:
            if (orphan := _read_orphaned_journal(path, leases)) is not None:
                orphans.append(orphan)
        except JournalUnavailableError as error:
            # A process that has just begun to create a journal has its lock.
            if path not in unreadable and path.exists() and not has_lock(path):
                unreadable.add(path)
                extra = {"path": str(path), "problem": error.problem}
                logger.error("journal.left_out", extra=extra)
    return sorted(orphans, key=lambda orphan: orphan.lost_for_s, reverse=True)


def _read_orphaned_journal(path: Path, leases: dict[Path, float]) -> OrphanedJournal | None:
    with open_read_only(path) as connection:
        ownership = read_ownership(connection, path)
        lost_for_s = ownership.expired_for_s
        if lost_for_s < 0:
            leases[path] = time.monotonic() - lost_for_s
            return None
        if has_lock(path):
            return None
        unfinished = _unfinished(connection)
        return OrphanedJournal(
            path.stem,
            ownership.journal_id,
            lost_for_s,
            frozenset(agent for agent, _ in unfinished),
            was_released=ownership.is_released,
            is_only_waiting=bool(unfinished)
            and all(state in INTERRUPTED for _, state in unfinished),
            is_empty=_is_empty(connection),
            has_webhooks=_has_webhooks(connection),
        )


def _unfinished(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the agents of unfinished tasks with the tasks' states, without duplicates."""
    # SQLite uses a partial index only if the query repeats the condition of the index literally.
    rows = connection.execute("SELECT DISTINCT agent, state FROM tasks WHERE ended_ns = 0")
    return [(agent, state) for agent, state in rows if state not in TERMINAL]


def list_unfinished_agents(path: Path) -> frozenset[str]:
    """Return the agents of the unfinished tasks of a journal that no process has open.

    Raises:
        JournalUnavailableError: it can't be read.
    """
    with open_read_only(path) as connection:
        read_ownership(connection, path)
        return frozenset(agent for agent, _ in _unfinished(connection))


def is_leased(folder: Path, journal_id: str) -> bool:
    """Return whether a living process has a valid lease on the journal with this id."""
    for path in sorted(folder.glob("*.db")):
        try:
            with open_read_only(path) as connection:
                ownership = read_ownership(connection, path)
        except JournalUnavailableError:
            continue
        if ownership.journal_id == journal_id:
            # The owner may be out of sight, in another container, or of a version without locks.
            has_holder = find_holder(path) is not None and ownership.expired_for_s < 0
            return has_holder or ownership.is_lease_in_use
    return False


def has_live_owner(path: Path) -> bool:
    """Return whether a process has the journal open."""
    return find_holder(path) is not None


def delete_if_empty(path: Path) -> bool:
    """Delete a journal if it contains no tasks. Return whether it was deleted.

    Raises:
        JournalUnavailableError: it can't be read, or a process has it open.
    """
    with open_read_only(path) as connection:
        if not _is_empty(connection):
            return False
    with contextlib.closing(FileLock.acquire(path)):
        with translate_all_errors(path), contextlib.closing(connect(path)) as connection:
            claim = claim_journal(connection, path)
            if not _is_empty(connection):
                release_journal(connection, claim.epoch, for_takeover=claim.was_lost)
                return False
        for file in (path, f"{path}-wal", f"{path}-shm"):
            Path(file).unlink(missing_ok=True)
        return True


def _has_webhooks(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM webhooks WHERE state IN (?, ?, ?) LIMIT 1"
    return connection.execute(query, LIVE_WEBHOOKS).fetchone() is not None


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM tasks LIMIT 1").fetchone() is None
