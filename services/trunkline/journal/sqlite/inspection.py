"""Finds journals whose owner is gone, or has let its lease run out; removes those without tasks."""

import contextlib
import logging
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from trunkline.errors import JournalUnavailableError
from trunkline.journal.sqlite.connection import connect, open_read_only, translate_all_errors
from trunkline.journal.sqlite.schema import claim_journal, read_ownership, release_journal
from trunkline.task_states import INTERRUPTED, TERMINAL

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OrphanedJournal:
    """A journal that was not given back, and whose lease is over."""

    path: Path
    journal_id: str
    lost_for_s: float
    """How long the lease has been over."""
    agents: frozenset[str]
    """The agents of its unfinished tasks."""
    is_only_waiting: bool = False
    """All of its unfinished tasks wait for somebody, and there are some."""
    is_empty: bool = False
    """It holds no task at all."""


def find_orphaned_journals(
    folder: Path, *, leases: dict[Path, float] | None = None
) -> list[OrphanedJournal]:
    """Return the journals in a folder that wait for a takeover, the longest lost first.

    It only reads. Files that can't be read are left out: `trunkline data check` names them.
    `held` is for those who look again and again: in it is noted until when leases hold, by the
    monotonic clock, and until then those journals aren't looked into.
    """
    leases = {} if leases is None else leases
    found: list[OrphanedJournal] = []
    for path in sorted(folder.glob("*.db")):
        if leases.get(path, 0.0) > time.monotonic():
            continue
        try:
            if (orphan := _read_orphaned_journal(path, leases)) is not None:
                found.append(orphan)
        except JournalUnavailableError as error:
            logger.debug("journal.not_read", extra={"path": str(path), "problem": error.problem})
    return sorted(found, key=lambda one: one.lost_for_s, reverse=True)


def _read_orphaned_journal(path: Path, held: dict[Path, float]) -> OrphanedJournal | None:
    with open_read_only(path) as connection:
        tenure = read_ownership(connection, path)
        if tenure.is_released:
            return None
        lost_for_s = tenure.expired_for_s
        if lost_for_s < 0:
            held[path] = time.monotonic() - lost_for_s
            return None
        if tenure.owner.is_this_process:
            return None
        unfinished = _unfinished(connection)
        return OrphanedJournal(
            path,
            tenure.journal_id,
            lost_for_s,
            frozenset(agent for agent, _ in unfinished),
            is_only_waiting=bool(unfinished)
            and all(state in INTERRUPTED for _, state in unfinished),
            is_empty=_is_empty(connection),
        )


def _unfinished(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """The agents of unfinished tasks, with the states of those."""
    rows = connection.execute("SELECT DISTINCT agent, state FROM tasks WHERE stage = 0")
    return [(agent, state) for agent, state in rows if state not in TERMINAL]


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a host left that ended."""

    was_lost: bool
    """The host did not give the journal back."""
    agents: frozenset[str]
    """The agents of its unfinished tasks."""


def inspect_journal(path: Path) -> JournalContents:
    """Return what is in a journal that nobody has. JournalUnavailableError."""
    with open_read_only(path) as connection:
        tenure = read_ownership(connection, path)
        agents = frozenset(agent for agent, _ in _unfinished(connection))
        return JournalContents(not tenure.is_released, agents)


def is_leased(folder: Path, journal_id: str) -> bool:
    """Tell whether a living process holds the journal of this id in a folder by its lease."""
    for path in sorted(folder.glob("*.db")):
        try:
            with open_read_only(path) as connection:
                tenure = read_ownership(connection, path)
        except JournalUnavailableError:
            continue
        if tenure.journal_id == journal_id:
            return tenure.owner.is_alive and tenure.expired_for_s < 0
    return False


def has_live_owner(path: Path) -> bool:
    """Tell whether a journal has an owner that is alive; not, also if it can't be read."""
    try:
        with open_read_only(path) as connection:
            return read_ownership(connection, path).owner.is_alive
    except JournalUnavailableError:
        return False


def delete_if_empty(path: Path) -> bool:
    """Remove a journal that nobody has, if it holds no task at all; tell whether it is gone.

    Raises:
        JournalUnavailableError: it can't be read, or its owner is alive.
    """
    with open_read_only(path) as connection:
        if not _is_empty(connection):
            return False
    with translate_all_errors(path), contextlib.closing(connect(path)) as connection:
        # From here on nobody else opens it: its owner is alive.
        claimed = claim_journal(connection, path)
        if not _is_empty(connection):
            release_journal(connection, claimed.epoch, for_takeover=claimed.was_lost)
            return False
    for name in (path, f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)
    return True


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM tasks LIMIT 1").fetchone() is None
