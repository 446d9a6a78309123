"""Folds of tasks: made of their events, and kept at hand for the next one to go on from."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from trunkline.errors import CursorExpiredError
from trunkline.journal.events import parse
from trunkline.journal.fold import Fold
from trunkline.journal.store import StoredFold
from trunkline.v1 import event_pb2, snapshot_pb2

# How many are kept at hand.
_FOLDS: Final = 64


class Folds:
    """The folds of a journal's tasks."""

    def __init__(
        self,
        *,
        head: Callable[[str], int],
        read: Callable[[str, int], list[bytes]],
        find_stored: Callable[[str], StoredFold | None],
    ) -> None:
        """`head` and `read` are those of the journal; `find_stored` knows compacted tasks."""
        self._head = head
        self._read = read
        self._find_stored = find_stored
        self._kept: OrderedDict[str, Fold] = OrderedDict()

    async def fold(self, task_id: str, until: int) -> Fold:
        """Return the fold of a task's events up to and including a sequence.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
            CursorExpiredError: the events up to there are past retention.
        """
        try:
            fold = await self._folded(task_id, until)
        except CursorExpiredError:
            # The events are compacted, or were just now; the whole of them is all there is.
            stored = self._find_stored(task_id)
            if stored is None or until != self._head(task_id):
                raise
            snapshot = snapshot_pb2.TaskSnapshot.FromString(stored.snapshot)
            fold = Fold(task_id, snapshot, forwarded=stored.forwarded)
        # The next one goes on from here.
        self._kept[task_id] = fold
        if len(self._kept) > _FOLDS:
            self._kept.popitem(last=False)
        return fold

    def drop(self, task_id: str) -> None:
        """Keep nothing of a task."""
        self._kept.pop(task_id, None)

    async def _folded(self, task_id: str, until: int) -> Fold:
        fold = self._kept.pop(task_id, None)
        if fold is None or fold.sequence > until:
            fold = Fold(task_id)
        is_cut = until < self._head(task_id)
        read_whole = event_pb2.EventBatch.FromString
        while fold.sequence < until:
            for sealed in self._read(task_id, fold.sequence):
                fold.apply(parse(sealed, until=until) if is_cut else read_whole(sealed))
                if fold.sequence >= until:
                    break
            if fold.sequence < until:
                # A long task takes a second: others are served meanwhile.
                await asyncio.sleep(0)
        return fold
