"""Caches the latest batches of tasks in memory, where nearly all reads find them."""

from bisect import bisect_right
from collections import OrderedDict
from typing import Final

# Dropped batches stay in the lists as empty entries until there are this many, because to shift a
# list is slow.
_SLACK: Final = 64


class Tail:
    """The latest batches of one task, up to a number of bytes."""

    __slots__ = ("_batches", "_dropped", "_firsts", "_limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._firsts: list[int] = []
        self._batches: list[bytes] = []
        self._dropped = 0
        self.size_bytes: int = 0

    def add(self, first_sequence: int, sealed: bytes) -> None:
        """Add the task's next batch, and drop the oldest batches beyond the limit."""
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
        """Return the batches that end after the sequence `after`: one or more, up to the limit.

        `after` must be before the task's last sequence. If some of these batches were dropped, the
        result is None.
        """
        index = self._index(after)
        return (
            None if index < self._dropped else self._batches[index : self._end(index, limit_bytes)]
        )

    def read_next(self, after: int, *, limit_bytes: int) -> tuple[list[bytes], int | None] | None:
        """Return the batches that `read` returns, and their last sequence.

        The sequence is None if it is the task's last. No batch is parsed. The result is None if
        some of the batches were dropped, or if the first one does not begin at `after` + 1.
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
        """Return the end index of the batches that fit into the limit. The first always fits."""
        total = len(self._batches[index])
        for end in range(index + 1, len(self._batches)):
            total += len(self._batches[end])
            if total > limit_bytes:
                return end
        return len(self._batches)


class Tails:
    """The tails of all tasks, up to a total size. The least recently written are dropped first."""

    def __init__(self, *, task_limit_bytes: int, limit_bytes: int) -> None:
        self._task_limit_bytes = task_limit_bytes
        self._limit_bytes = limit_bytes
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self.size_bytes: int = 0

    def add(self, task_id: str, first_sequence: int, sealed: bytes) -> None:
        """Add a task's next batch."""
        tail = self._tails.get(task_id)
        if tail is None:
            tail = self._tails[task_id] = Tail(self._task_limit_bytes)
        else:
            self._tails.move_to_end(task_id)
        before = tail.size_bytes
        tail.add(first_sequence, sealed)
        self.size_bytes += tail.size_bytes - before
        while self.size_bytes > self._limit_bytes:
            _, oldest = self._tails.popitem(last=False)
            self.size_bytes -= oldest.size_bytes

    def find(self, task_id: str) -> Tail | None:
        """Return a task's tail, or None if it has no tail."""
        return self._tails.get(task_id)

    def drop(self, task_id: str) -> None:
        """Remove a task's tail."""
        tail = self._tails.pop(task_id, None)
        if tail is not None:
            self.size_bytes -= tail.size_bytes
