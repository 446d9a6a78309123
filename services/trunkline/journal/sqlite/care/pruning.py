"""Applies retention to a journal that no host has open, all of it at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.retention import Retention, Retiring
from trunkline.journal.sqlite.connection import looking
from trunkline.journal.sqlite.store import SqliteStore

_BITE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many tasks were replaced by their folds, are gone, or can't be read and were left."""

    compacted: int
    forgotten: int
    damaged: int


def prune(path: Path, retention: Retention) -> Pruned:
    """Do what retention asks for, and give the room back to the disk.

    A journal that its host has lost stays lost: who is to take it over still is.

    Raises:
        JournalUnavailableError: a process has it open, or it can't be read or written.
    """
    store = SqliteStore.open(path)
    try:
        retiring = Retiring(store, retention)
        damaged = 0
        while store.has_backlog() or _finds(retiring):
            if store.has_backlog():
                store.settle(budget_bytes=_BITE_BYTES)
                continue
            try:
                bite = retiring.step(_BITE_BYTES)
            except (JournalUnavailableError, InvalidAgentResponseError):
                damaged += 1
                continue
            if bite is not None:
                bite.write()
                retiring.written(bite)
        if retiring.compacted or retiring.forgotten:
            store.shrink()
        return Pruned(retiring.compacted, retiring.forgotten, damaged)
    finally:
        store.close(as_lost=store.was_lost)


def task_ids(path: Path) -> set[str]:
    """Return the tasks of a journal. JournalUnavailableError: it can't be read."""
    with looking(path) as connection:
        return {task_id for (task_id,) in connection.execute("SELECT task_id FROM tasks")}


def _finds(retiring: Retiring) -> bool:
    retiring.look()
    return retiring.has_work
