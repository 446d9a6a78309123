"""Backs up SQLite files in use, and applies retention to journals that no host has open."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.core.database import copy_file, open_read_only
from trunkline.core.encryption import Keyring
from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.retention import Compactor, Retention
from trunkline.journal.sqlite.schema import mark_abandoned
from trunkline.journal.sqlite.store import SqliteStore


def back_up_file(path: Path, target: Path) -> None:
    """Copy a SQLite file to a new file. Other processes may write to it meanwhile.

    A copy of a journal has all events that were acknowledged before the call. It looks abandoned by
    its owner, so opening it increases the epoch. Cursors of events after the copy are then refused.

    Raises:
        JournalUnavailableError: the file can't be read, or the copy can't be written.
        FileExistsError: the target exists.
    """
    with copy_file(path, target) as copy:
        mark_abandoned(copy)


# The amount of work in one write.
_STEP_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The numbers of tasks that were compacted, deleted, and skipped because they are damaged."""

    compacted: int
    deleted: int
    damaged: int


async def prune_journal(
    path: Path, retention: Retention, keyring: Keyring | None = None
) -> PruneResult:
    """Compact and delete all tasks whose retention time is over, and free the disk space.

    A journal that waits for a takeover still waits for one afterwards.

    Raises:
        JournalUnavailableError: a process has it open, or it can't be read or written.
    """
    store = SqliteStore.open(path, keyring=keyring)
    try:
        compactor = Compactor(store, retention)
        damaged = 0
        while await _scan(compactor):
            try:
                step = await compactor.next_step(_STEP_BYTES)
            except (JournalUnavailableError, InvalidAgentResponseError):
                damaged += 1
                continue
            if step is not None:
                await step.write()
                step.confirm()
        if compactor.compacted_count or compactor.deleted_count:
            store.vacuum()
        return PruneResult(compactor.compacted_count, compactor.deleted_count, damaged)
    finally:
        await store.close(for_takeover=store.was_lost)


def list_task_ids(path: Path) -> set[str]:
    """Return the task ids of a journal.

    Raises:
        JournalUnavailableError: it can't be read.
    """
    with open_read_only(path) as connection:
        return {task_id for (task_id,) in connection.execute("SELECT task_id FROM tasks")}


async def _scan(compactor: Compactor) -> bool:
    """Find tasks whose retention time is over. Return whether there is work."""
    await compactor.scan()
    return compactor.has_work
