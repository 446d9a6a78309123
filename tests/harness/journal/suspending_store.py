"""Stores that suspend their callers, as a store behind a network or on a slow disk does."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from inspect import iscoroutinefunction
from typing import Any, cast

from trunkline.journal.store import CommitGroup, JournalStore


def suspending(store: JournalStore) -> JournalStore:
    """Return a store whose coroutines suspend their callers before and after the work.

    The number of iterations of the event loop varies, so that calls overtake each other.
    """
    return cast("JournalStore", _SuspendingStore(store))


def with_disk(store: JournalStore, disk: asyncio.Event) -> JournalStore:
    """Return a store whose commits wait for its disk, which is stuck unless the event is set."""
    return cast("JournalStore", _StoreWithDisk(store, disk))


class _StoreWithDisk:
    def __init__(self, store: JournalStore, disk: asyncio.Event) -> None:
        self._store = store
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, group: CommitGroup) -> None:
        await self._disk.wait()
        await self._store.commit(group)


class _SuspendingStore:
    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._pauses = itertools.cycle((1, 0, 3, 2, 1))

    def __getattr__(self, name: str) -> object:
        value = getattr(self._store, name)
        return _suspend(value, self._pauses) if iscoroutinefunction(value) else value


def _suspend(
    function: Callable[..., Awaitable[Any]], pauses: Iterator[int]
) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        for _ in range(next(pauses)):
            await asyncio.sleep(0)
        try:
            return await function(*args, **kwargs)
        finally:
            for _ in range(next(pauses)):
                await asyncio.sleep(0)

    return call
