"""Folds tasks on demand. It caches the folds, so that a later request continues from there."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from trunkline.errors import CursorExpiredError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.store import StoredFold
from trunkline.v1 import snapshot_pb2

# Limits of the cache: the number of folds, and the bytes folded into them.
_MAX_FOLDS: Final = 64
_MAX_BYTES: Final = 16 << 20


@dataclass(slots=True)
class _CachedFold:
    """A fold, and the number of bytes folded into it, which estimates its size in memory."""

    fold: Fold
    size_bytes: int = 0


class FoldCache:
    """The most recently requested folds of a journal's tasks.

    The number of folds and the bytes folded into them are limited. The latest fold is cached at any
    size.
    """

    def __init__(
        self,
        *,
        head: Callable[[str], Awaitable[int]],
        read: Callable[[str, int], Awaitable[list[bytes]]],
        find_stored: Callable[[str], Awaitable[StoredFold | None]],
        limit_bytes: int = _MAX_BYTES,
    ) -> None:
        """`head` and `read` are methods of the journal; `find_stored` reads stored folds."""
        self._head = head
        self._read = read
        self._find_stored = find_stored
        self._limit_bytes = limit_bytes
        self._folds: OrderedDict[str, _CachedFold] = OrderedDict()
        self._size_bytes = 0
        self._long_fold_lock = asyncio.Lock()

    async def fold(
        self, task_id: str, until: int, since: snapshot_pb2.TaskSnapshot | None = None
    ) -> Fold:
        """Return the fold of a task's events up to and including a sequence.

        A fold that is not cached begins at `since`, an earlier state of the task without forwarded
        events, or else at the first event. Read the fold before the next `await`: another request
        may continue the same object.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            JournalUnavailableError: the journal can't be read.
            CursorExpiredError: the events up to this sequence are past retention.
        """
        try:
            cached = await self._fold_to(task_id, until, since)
        except CursorExpiredError:
            # The task is compacted: only the fold of all its events is stored.
            stored = await self._find_stored(task_id)
            if stored is None or until != await self._head(task_id):
                raise
            snapshot = snapshot_pb2.TaskSnapshot.FromString(stored.snapshot)
            fold = Fold(task_id, snapshot, forwarded=stored.forwarded)
            cached = _CachedFold(fold, len(stored.snapshot))
        self._add(task_id, cached)
        return cached.fold

    def drop(self, task_id: str) -> None:
        """Remove a task's fold."""
        self._take(task_id)

    def _add(self, task_id: str, cached: _CachedFold) -> None:
        """Add a fold, and drop the least recently used ones beyond the limits."""
        self._take(task_id)
        self._folds[task_id] = cached
        self._size_bytes += cached.size_bytes
        while len(self._folds) > _MAX_FOLDS or (
            self._size_bytes > self._limit_bytes and len(self._folds) > 1
        ):
            _, oldest = self._folds.popitem(last=False)
            self._size_bytes -= oldest.size_bytes

    def _take(self, task_id: str) -> _CachedFold | None:
        """Remove and return a task's fold. No other request uses it until it is added again."""
        cached = self._folds.pop(task_id, None)
        if cached is not None:
            self._size_bytes -= cached.size_bytes
        return cached

    async def _fold_to(
        self, task_id: str, until: int, since: snapshot_pb2.TaskSnapshot | None
    ) -> _CachedFold:
        cached = self._take_or_begin(task_id, until, since)
        await self._fold_one_read(task_id, cached, until)
        if cached.fold.sequence >= until:
            return cached
        # To fold a long task takes a second, so other work on the loop runs between its reads. Only
        # one task is folded so: many could use up the memory, and requests for the same task share
        # the fold.
        async with self._long_fold_lock:
            other = self._take_or_begin(task_id, until, since)
            if other.fold.sequence > cached.fold.sequence:
                cached = other
            while cached.fold.sequence < until:
                await asyncio.sleep(0)
                await self._fold_one_read(task_id, cached, until)
            return cached

    def _take_or_begin(
        self, task_id: str, until: int, since: snapshot_pb2.TaskSnapshot | None
    ) -> _CachedFold:
        """Return the cached fold if it is not past `until`, or a new one."""
        cached = self._take(task_id)
        if cached is None or cached.fold.sequence > until:
            return _CachedFold(Fold(task_id, since), since.ByteSize() if since else 0)
        return cached

    async def _fold_one_read(self, task_id: str, cached: _CachedFold, until: int) -> None:
        """Fold the batches of one read."""
        fold = cached.fold
        if fold.sequence >= until:
            return
        for sealed in await self._read(task_id, fold.sequence):
            fold.apply(parse_batch(sealed, until=until))
            cached.size_bytes += len(sealed)
            if fold.sequence >= until:
                return
