"""Folds of tasks: made of their events, and kept at hand for the next one to go on from."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trunkline.errors import CursorExpiredError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.store import StoredFold
from trunkline.v1 import event_pb2, snapshot_pb2

# How many are kept at hand, and how much they may hold.
_FOLDS: Final = 64
_FOLDS_BYTES: Final = 16 << 20


@dataclass(slots=True)
class _CachedFold:
    """A fold, and the length of what was folded into it: about what it holds."""

    fold: Fold
    length_bytes: int = 0


class FoldCache:
    """The folds of a journal's tasks; those asked for last are kept, the latest whatever its size.

    What is kept, but for that one, is bounded in number and by the bytes folded into it.
    """

    def __init__(
        self,
        *,
        head: Callable[[str], int],
        read: Callable[[str, int], list[bytes]],
        find_stored: Callable[[str], StoredFold | None],
        limit_bytes: int = _FOLDS_BYTES,
    ) -> None:
        """`head` and `read` are those of the journal; `find_stored` knows compacted tasks."""
        self._head = head
        self._read = read
        self._find_stored = find_stored
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, _CachedFold] = OrderedDict()
        self._kept_bytes = 0
        self._long_one = asyncio.Lock()

    async def fold(self, task_id: str, until: int) -> Fold:
        """Return the fold of a task's events up to and including a sequence.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
            CursorExpiredError: the events up to there are past retention.
        """
        try:
            folding = await self._folded(task_id, until)
        except CursorExpiredError:
            # The events are compacted, or were just now; the whole of them is all there is.
            stored = self._find_stored(task_id)
            if stored is None or until != self._head(task_id):
                raise
            snapshot = snapshot_pb2.TaskSnapshot.FromString(stored.snapshot)
            fold = Fold(task_id, snapshot, forwarded=stored.forwarded)
            folding = _CachedFold(fold, len(stored.snapshot))
        self._keep(task_id, folding)
        return folding.fold

    def drop(self, task_id: str) -> None:
        """Keep nothing of a task."""
        self._take(task_id)

    def _keep(self, task_id: str, folding: _CachedFold) -> None:
        """Let the next one go on from here."""
        self._take(task_id)
        self._kept[task_id] = folding
        self._kept_bytes += folding.length_bytes
        while len(self._kept) > _FOLDS or (
            self._kept_bytes > self._limit_bytes and len(self._kept) > 1
        ):
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.length_bytes

    def _take(self, task_id: str) -> _CachedFold | None:
        """Return what is kept of a task, for whoever asks alone."""
        folding = self._kept.pop(task_id, None)
        if folding is not None:
            self._kept_bytes -= folding.length_bytes
        return folding

    async def _folded(self, task_id: str, until: int) -> _CachedFold:
        folding = self._taken(task_id, until)
        self._fold_some(task_id, folding, until)
        if folding.fold.sequence >= until:
            return folding
        # A long task takes a second: others are served meanwhile. Of many who ask for long ones at
        # once, each holding its own would take all memory; and for the same one, its fold will do.
        async with self._long_one:
            kept = self._taken(task_id, until)
            if kept.fold.sequence > folding.fold.sequence:
                folding = kept
            while folding.fold.sequence < until:
                await asyncio.sleep(0)
                self._fold_some(task_id, folding, until)
            return folding

    def _taken(self, task_id: str, until: int) -> _CachedFold:
        """Return what is kept of a task if it can be gone on with, or else a beginning."""
        folding = self._take(task_id)
        if folding is None or folding.fold.sequence > until:
            return _CachedFold(Fold(task_id))
        return folding

    def _fold_some(self, task_id: str, folding: _CachedFold, until: int) -> None:
        """Fold what one read gives."""
        fold = folding.fold
        if fold.sequence >= until:
            return
        is_cut = until < self._head(task_id)
        read_whole = event_pb2.EventBatch.FromString
        for sealed in self._read(task_id, fold.sequence):
            fold.apply(parse_batch(sealed, until=until) if is_cut else read_whole(sealed))
            folding.length_bytes += len(sealed)
            if fold.sequence >= until:
                return
