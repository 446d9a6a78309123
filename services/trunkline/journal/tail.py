"""Keeps the latest batches of tasks in memory, where nearly all readers read."""

from bisect import bisect_right
from collections import OrderedDict
from typing import Final

# Dropped batches stay in the lists until there are this many: shifting a list has its cost.
_SLACK: Final = 64


class Tail:
    """The latest batches of one task, up to a number of bytes. Readers are cursors: it has none."""

    __slots__ = ("_batches", "_dropped", "_firsts", "_limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._firsts: list[int] = []
        self._batches: list[bytes] = []
        self._dropped = 0
        self.size_bytes = 0

    def add(self, first_sequence: int, sealed: bytes) -> None:
        """Add the batch that follows, and drop the oldest ones beyond the limit."""
        self._firsts.append(first_sequence)
        self._batches.append(sealed)
        self.size_bytes += len(sealed)
        while self.size_bytes > self._limit_bytes:
            self.size_bytes -= len(self._batches[self._dropped])
            self._batches[self._dropped] = b""
            self._dropped += 1
        if self._dropped >= _SLACK:
            del self._firsts[: self._dropped]
            del self._batches[: self._dropped]
            self._dropped = 0

    def read(self, after: int, *, limit_bytes: int) -> list[bytes] | None:
        """Return the batches that end behind `after`: one, and more up to the limit.

        `after` is before the task's last sequence. None: they are not all here.
        """
        index = self._index(after)
        return (
            None if index < self._dropped else self._batches[index : self._end(index, limit_bytes)]
        )

    def read_next(self, after: int, *, limit_bytes: int) -> tuple[list[bytes], int | None] | None:
        """Return what `find` does, and the last sequence of it; None for that: the task's last.

        None: they are not all here, or the first one doesn't begin right behind `after`.
        """
        index = self._index(after)
        if index < self._dropped or self._firsts[index] != after + 1:
            return None
        end = self._end(index, limit_bytes)
        last = self._firsts[end] - 1 if end < len(self._firsts) else None
        return self._batches[index:end], last

    def _index(self, after: int) -> int:
        return bisect_right(self._firsts, after + 1, lo=self._dropped) - 1

    def _end(self, index: int, limit_bytes: int) -> int:
        """Where the batches end that fit into the limit, the first in any case."""
        total = len(self._batches[index])
        for end in range(index + 1, len(self._batches)):
            total += len(self._batches[end])
            if total > limit_bytes:
                return end
        return len(self._batches)


class Tails:
    """The tails of all tasks, up to a number of bytes together: the idlest task's goes first."""

    def __init__(self, *, task_limit_bytes: int, limit_bytes: int) -> None:
        self._task_limit_bytes = task_limit_bytes
        self._limit_bytes = limit_bytes
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self.size_bytes = 0

    def add(self, task_id: str, first_sequence: int, sealed: bytes) -> None:
        """Add the batch that follows in a task."""
        tail = self._tails.get(task_id)
        if tail is None:
            tail = self._tails[task_id] = Tail(self._task_limit_bytes)
        else:
            self._tails.move_to_end(task_id)
        before = tail.size_bytes
        tail.add(first_sequence, sealed)
        self.size_bytes += tail.size_bytes - before
        while self.size_bytes > self._limit_bytes:
            _, idlest = self._tails.popitem(last=False)
            self.size_bytes -= idlest.size_bytes

    def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes] | None:
        """Return what `Tail.find` of the task's tail does; None as well if it has none."""
        tail = self._tails.get(task_id)
        return None if tail is None else tail.read(after, limit_bytes=limit_bytes)

    def read_next(
        self, task_id: str, after: int, *, limit_bytes: int
    ) -> tuple[list[bytes], int | None] | None:
        """Return what `Tail.follow` of the task's tail does; None as well if it has none."""
        tail = self._tails.get(task_id)
        return None if tail is None else tail.read_next(after, limit_bytes=limit_bytes)

    def drop(self, task_id: str) -> None:
        """Keep nothing of a task."""
        tail = self._tails.pop(task_id, None)
        if tail is not None:
            self.size_bytes -= tail.size_bytes
