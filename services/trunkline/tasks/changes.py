"""Tells watchers which tasks of an account changed, and reads the texts of lists of tasks."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from trunkline.errors import CursorExpiredError
from trunkline.journal.batches import parse_batch
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.content import message_text

# A watcher that is further behind lists all tasks again.
_MAX_PENDING: Final = 1000
_TEXT_CHARS: Final = 200


class ChangedTasks:
    """The changes that one watcher has not taken yet: the latest row of each changed task."""

    def __init__(self, limit: int = _MAX_PENDING) -> None:
        self._limit = limit
        self._rows: dict[str, TaskRow] = {}
        self._is_incomplete = False
        self._ready = asyncio.Event()

    def add(self, row: TaskRow) -> None:
        """Add a change. Beyond the limit all changes are dropped, which `take` reports."""
        if self._is_incomplete:
            return
        # A task that changes again moves to the end, so that rows come in the order of changes.
        self._rows.pop(row.task_id, None)
        self._rows[row.task_id] = row
        if len(self._rows) > self._limit:
            self._rows.clear()
            self._is_incomplete = True
        self._ready.set()

    async def take(self) -> tuple[list[TaskRow], bool]:
        """Wait for changes; return the rows, and True if changes before them were dropped."""
        await self._ready.wait()
        self._ready.clear()
        rows, is_incomplete = list(self._rows.values()), self._is_incomplete
        self._rows.clear()
        self._is_incomplete = False
        return rows, is_incomplete


class TaskChanges:
    """The watchers of the tasks of all journals of a host, by account."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[ChangedTasks]] = {}

    def publish(self, rows: Iterable[TaskRow]) -> None:
        """Pass changed rows on to the watchers of their accounts."""
        if self._watchers:
            for row in rows:
                for watcher in self._watchers.get(row.account, ()):
                    watcher.add(row)

    @contextmanager
    def watch(self, account: str) -> Iterator[ChangedTasks]:
        """Collect the changes of an account's tasks while the block runs."""
        watcher = ChangedTasks()
        self._watchers.setdefault(account, set()).add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[account].discard(watcher)
            if not self._watchers[account]:
                del self._watchers[account]


def read_first_text(journal: Journal, task_id: str) -> str:
    """Return the begin of the text of a task's first message; empty if it is not stored.

    Raises:
        TaskNotFoundError: there is no such task.
        JournalUnavailableError: the journal can't be read.
    """
    try:
        batches = journal.read(task_id, 0, limit_bytes=0)
    except CursorExpiredError:
        stored = journal.find_stored_snapshot(task_id)
        history = stored.task.history if stored is not None else ()
        return message_text(history[0])[:_TEXT_CHARS] if history else ""
    for event in parse_batch(batches[0]).events if batches else ():
        if event.HasField("created"):
            return message_text(event.created.message)[:_TEXT_CHARS]
    return ""
