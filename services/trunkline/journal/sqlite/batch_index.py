"""Finds the batches of unsettled tasks in the rows of commits."""

import threading
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trunkline.journal.store import SealedBatch


class BatchPosition(NamedTuple):
    """The position of a batch: its commit, its offset there in bytes, and its size."""

    commit_id: int
    offset: int
    size_bytes: int


class _TaskPositions:
    """The positions of one task's batches, 32 bytes each."""

    __slots__ = ("commits", "firsts", "head", "offsets", "sizes")

    def __init__(self) -> None:
        self.firsts = array("q")
        self.commits = array("q")
        self.offsets = array("q")
        self.sizes = array("q")
        self.head = 0

    def position(self, index: int) -> BatchPosition:
        return BatchPosition(self.commits[index], self.offsets[index], self.sizes[index])


class BatchIndex:
    """The positions of unsettled tasks' batches, by task and sequence.

    It counts the batches that need each commit, and returns commits that no batch needs. One thread
    may write while another reads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, _TaskPositions] = {}
        # The number of batches that need each commit.
        self._batch_counts: Counter[int] = Counter()
        # The commit ids of dropped tasks' batches, one for each batch.
        self._dropped: list[array[int]] = []

    def add(
        self, commit_id: int, batches: Sequence[SealedBatch], spans: Iterable[tuple[int, int]]
    ) -> None:
        """Add the batches of a commit, in the order of their sequences.

        `spans` are their offsets and sizes in the commit, in bytes.
        """
        tasks = self._tasks
        with self._lock:
            for batch, (offset, size_bytes) in zip(batches, spans, strict=True):
                positions = tasks.get(batch.task_id)
                if positions is None:
                    positions = tasks[batch.task_id] = _TaskPositions()
                positions.firsts.append(batch.first_sequence)
                positions.commits.append(commit_id)
                positions.offsets.append(offset)
                positions.sizes.append(size_bytes)
                positions.head = batch.first_sequence + batch.count - 1
            if batches:
                self._batch_counts[commit_id] += len(batches)

    def head(self, task_id: str) -> int | None:
        """Return the last sequence of a task. None: the task is not in the index."""
        positions = self._tasks.get(task_id)
        return None if positions is None else positions.head

    def find(self, task_id: str, after: int, *, limit_bytes: int) -> list[BatchPosition] | None:
        """Return the positions of batches that end after the sequence `after`.

        They are at least one, unless `after` is the last sequence, and more up to the limit. None:
        the task is not in the index.
        """
        with self._lock:
            positions = self._tasks.get(task_id)
            if positions is None:
                return None
            if after >= positions.head:
                return []
            index = max(0, bisect_right(positions.firsts, after + 1) - 1)
            batches = [positions.position(index)]
            total = batches[0].size_bytes
            for following in range(index + 1, len(positions.firsts)):
                total += positions.sizes[following]
                if total > limit_bytes:
                    break
                batches.append(positions.position(following))
            return batches

    def drop(self, task_ids: Iterable[str]) -> None:
        """Remove tasks. Later calls of `release` return the commits that only they needed."""
        with self._lock:
            for task_id in task_ids:
                self._dropped.append(self._tasks.pop(task_id).commits)

    @property
    def has_dropped(self) -> bool:
        """Some batches of dropped tasks are not released yet."""
        return bool(self._dropped)

    def release(self, limit: int) -> list[int]:
        """Release up to `limit` batches of dropped tasks. Return the commits no longer needed."""
        unneeded: list[int] = []
        with self._lock:
            while self._dropped and limit > 0:
                commits = self._dropped[-1]
                released = commits[-limit:]
                del commits[-limit:]
                limit -= len(released)
                if not commits:
                    self._dropped.pop()
                for commit_id in released:
                    self._batch_counts[commit_id] -= 1
                    if not self._batch_counts[commit_id]:
                        del self._batch_counts[commit_id]
                        unneeded.append(commit_id)
        return unneeded

    def needs_commit(self, commit_id: int) -> bool:
        """Return whether any batch in a commit is still needed."""
        return commit_id in self._batch_counts


# The length before each batch in a payload.
