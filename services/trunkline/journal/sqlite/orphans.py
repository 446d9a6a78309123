"""Finds journals whose owner is gone, or has let its lease run out; removes those without tasks."""

import contextlib
import logging
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from trunkline.errors import JournalUnavailableError
from trunkline.journal.sqlite.connection import connect, distrusted, looking
from trunkline.journal.sqlite.schema import claim, release, tenure_of
from trunkline.journal.states import INTERRUPTED, TERMINAL

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A journal that was not given back, and whose lease is over."""

    path: Path
    journal_id: str
    lost_for_s: float
    """How long the lease has been over."""
    agents: frozenset[str]
    """The agents of its unfinished tasks."""
    only_waits: bool = False
    """All of its unfinished tasks wait for somebody, and there are some."""
    is_empty: bool = False
    """It holds no task at all."""


def orphans(folder: Path, *, held: dict[Path, float] | None = None) -> list[Orphan]:
    """Return the journals in a folder that wait for a takeover, the longest lost first.

    It only reads. Files that can't be read are left out: `trunkline data check` names them.
    `held` is for those who look again and again: in it is noted until when leases hold, by the
    monotonic clock, and until then those journals aren't looked into.
    """
    held = {} if held is None else held
    found: list[Orphan] = []
    for path in sorted(folder.glob("*.db")):
        if held.get(path, 0.0) > time.monotonic():
            continue
        try:
            if (orphan := _orphan(path, held)) is not None:
                found.append(orphan)
        except JournalUnavailableError as error:
            logger.debug("journal.not_read", extra={"path": str(path), "problem": error.problem})
    return sorted(found, key=lambda one: one.lost_for_s, reverse=True)


def _orphan(path: Path, held: dict[Path, float]) -> Orphan | None:
    with looking(path) as connection:
        tenure = tenure_of(connection, path)
        if tenure.is_free:
            return None
        lost_for_s = tenure.lost_for_s
        if lost_for_s < 0:
            held[path] = time.monotonic() - lost_for_s
            return None
        if tenure.owner.is_this_process:
            return None
        unfinished = _unfinished(connection)
        return Orphan(
            path,
            tenure.journal_id,
            lost_for_s,
            frozenset(agent for agent, _ in unfinished),
            only_waits=bool(unfinished) and all(state in INTERRUPTED for _, state in unfinished),
            is_empty=_is_empty(connection),
        )


def _unfinished(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """The agents of unfinished tasks, with the states of those."""
    rows = connection.execute("SELECT DISTINCT agent, state FROM tasks WHERE stage = 0")
    return [(agent, state) for agent, state in rows if state not in TERMINAL]


@dataclass(frozen=True, slots=True)
class Left:
    """What a host left that ended."""

    was_lost: bool
    """The host did not give the journal back."""
    agents: frozenset[str]
    """The agents of its unfinished tasks."""


def left_in(path: Path) -> Left:
    """Return what is in a journal that nobody has. JournalUnavailableError."""
    with looking(path) as connection:
        tenure = tenure_of(connection, path)
        agents = frozenset(agent for agent, _ in _unfinished(connection))
        return Left(not tenure.is_free, agents)


def is_held(folder: Path, journal_id: str) -> bool:
    """Tell whether a living process holds the journal of this id in a folder by its lease."""
    for path in sorted(folder.glob("*.db")):
        try:
            with looking(path) as connection:
                tenure = tenure_of(connection, path)
        except JournalUnavailableError:
            continue
        if tenure.journal_id == journal_id:
            return tenure.owner.is_alive and tenure.lost_for_s < 0
    return False


def is_owned(path: Path) -> bool:
    """Tell whether a journal has an owner that is alive; not, also if it can't be read."""
    try:
        with looking(path) as connection:
            return tenure_of(connection, path).owner.is_alive
    except JournalUnavailableError:
        return False


def discard(path: Path) -> bool:
    """Remove a journal that nobody has, if it holds no task at all; tell whether it is gone.

    Raises:
        JournalUnavailableError: it can't be read, or its owner is alive.
    """
    with looking(path) as connection:
        if not _is_empty(connection):
            return False
    with distrusted(path), contextlib.closing(connect(path)) as connection:
        # From here on nobody else opens it: its owner is alive.
        claimed = claim(connection, path)
        if not _is_empty(connection):
            release(connection, claimed.epoch, as_lost=claimed.was_lost)
            return False
    for name in (path, f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)
    return True


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM tasks LIMIT 1").fetchone() is None
