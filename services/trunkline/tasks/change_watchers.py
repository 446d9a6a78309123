"""Collects changes for watchers, each of which gets the latest row of each changed thing."""

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Generic, TypeAlias, TypeVar

from trunkline.journal.journal import TaskRow

# A watcher that is further behind lists everything again.
_MAX_PENDING: Final = 1000

_Key = TypeVar("_Key", bound=Hashable)
_Row = TypeVar("_Row")


class PendingChanges(Generic[_Key, _Row]):
    """The changes that a watcher has not taken yet: the latest row of each key."""

    def __init__(self, limit: int = _MAX_PENDING) -> None:
        self._limit = limit
        self._rows: dict[_Key, _Row] = {}
        self._is_incomplete = False
        self._ready = asyncio.Event()

    def add(self, key: _Key, row: _Row) -> None:
        """Add a change. Beyond the limit all changes are dropped, which `take` reports."""
        if self._is_incomplete:
            return
        # What changes again moves to the end, so that rows come in the order of changes.
        self._rows.pop(key, None)
        self._rows[key] = row
        if len(self._rows) > self._limit:
            self._rows.clear()
            self._is_incomplete = True
        self._ready.set()

    async def take(self) -> tuple[list[_Row], bool]:
        """Wait for changes; return the rows, and True if changes before them were dropped."""
        await self._ready.wait()
        self._ready.clear()
        rows, is_incomplete = list(self._rows.values()), self._is_incomplete
        self._rows.clear()
        self._is_incomplete = False
        return rows, is_incomplete


class ChangeWatchers(Generic[_Key, _Row]):
    """The watchers of the changes of accounts."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[PendingChanges[_Key, _Row]]] = {}

    @property
    def is_empty(self) -> bool:
        """True if there are no watchers."""
        return not self._watchers

    def publish(self, account: str, key: _Key, row: _Row) -> None:
        """Pass a change on to the watchers of an account."""
        for watcher in self._watchers.get(account, ()):
            watcher.add(key, row)

    @contextmanager
    def watch(self, account: str) -> Iterator[PendingChanges[_Key, _Row]]:
        """Collect the changes of an account while the block runs."""
        watcher = PendingChanges[_Key, _Row]()
        self._watchers.setdefault(account, set()).add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[account].discard(watcher)
            if not self._watchers[account]:
                del self._watchers[account]


ChangedTasks: TypeAlias = PendingChanges[str, TaskRow]
"""The changes that a watcher has not taken yet: the latest row of each changed task."""


class TaskChanges:
    """The watchers of the tasks of all journals of a host, by account."""

    def __init__(self) -> None:
        self._watchers = ChangeWatchers[str, TaskRow]()

    def publish(self, rows: Iterable[TaskRow]) -> None:
        """Pass changed rows on to the watchers of their accounts."""
        if not self._watchers.is_empty:
            for row in rows:
                self._watchers.publish(row.account, row.task_id, row)

    def watch(self, account: str) -> AbstractContextManager[ChangedTasks]:
        """Collect the changes of an account's tasks while the block runs."""
        return self._watchers.watch(account)
