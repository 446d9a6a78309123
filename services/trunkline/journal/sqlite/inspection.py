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
from trunkline.journal.catalog import JournalContents, OrphanedJournal
from trunkline.journal.sqlite.schema import claim_journal, read_ownership, release_journal

logger = logging.getLogger(__name__)


def find_orphaned_journals(
    folder: Path, *, leases: dict[Path, float] | None = None
) -> list[OrphanedJournal]:
    """Return the journals in a folder that can be taken over, the longest expired first.

    It changes nothing. It skips files that can't be read; `trunkline data check` names them.
    `leases` is a cache for repeated calls: this function stores the end of each valid lease in it,
    by the monotonic clock, and does not open the journal again before that time.
    """
    leases = {} if leases is None else leases
    orphans: list[OrphanedJournal] = []
    for path in sorted(folder.glob("*.db")):
        if leases.get(path, 0.0) > time.monotonic():
            continue
        try:
            if (orphan := _read_orphaned_journal(path, leases)) is not None:
                orphans.append(orphan)
        except JournalUnavailableError as error:
            logger.debug("journal.not_read", extra={"path": str(path), "problem": error.problem})
    return sorted(orphans, key=lambda orphan: orphan.lost_for_s, reverse=True)


def _read_orphaned_journal(path: Path, leases: dict[Path, float]) -> OrphanedJournal | None:
    with open_read_only(path) as connection:
        ownership = read_ownership(connection, path)
        # A host that ends may find nobody who takes its unfinished tasks at that moment.
        if ownership.is_released and not _unfinished(connection):
            return None
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
            is_only_waiting=bool(unfinished)
            and all(state in INTERRUPTED for _, state in unfinished),
            is_empty=_is_empty(connection),
        )


def _unfinished(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the agents of unfinished tasks with the tasks' states, without duplicates."""
    # SQLite uses a partial index only if the query repeats the condition of the index literally.
    rows = connection.execute("SELECT DISTINCT agent, state FROM tasks WHERE ended_ns = 0")
    return [(agent, state) for agent, state in rows if state not in TERMINAL]


def inspect_journal(path: Path) -> JournalContents:
    """Return the contents of a journal that no process has open.

    Raises:
        JournalUnavailableError: it can't be read.
    """
    with open_read_only(path) as connection:
        ownership = read_ownership(connection, path)
        agents = frozenset(agent for agent, _ in _unfinished(connection))
        return JournalContents(not ownership.is_released, agents)


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


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM tasks LIMIT 1").fetchone() is None
