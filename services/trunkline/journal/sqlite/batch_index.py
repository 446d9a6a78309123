"""Finds the batches of unsettled tasks in the rows of commits, and packs batches into such rows."""

import struct
import threading
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from trunkline.journal.store import SealedBatch


class BatchPosition(NamedTuple):
    """The position of a batch: its commit, its offset there in bytes, and its size."""

    commit_id: int
    offset: int
    size_bytes: int


class _Entries:
    """The positions of one task's batches, 32 bytes each."""

    __slots__ = ("commits", "firsts", "head", "offsets", "sizes")

    def __init__(self) -> None:
        self.firsts = array("q")
        self.commits = array("q")
        self.offsets = array("q")
        self.sizes = array("q")
        self.head = 0

    def place(self, index: int) -> BatchPosition:
        return BatchPosition(self.commits[index], self.offsets[index], self.sizes[index])


class BatchIndex:
    """The positions of batches by task and sequence, and the commits that are no longer needed.

    One thread may write while another reads. A lock is held for the short time of each access.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, _Entries] = {}
        # The number of unreleased batches by commit.
        self._needed_by: Counter[int] = Counter()
        # Commits of dropped tasks' batches.
        self._dropped: list[array[int]] = []

    def add(
        self, commit_id: int, batches: Sequence[SealedBatch], places: Iterable[tuple[int, int]]
    ) -> None:
        """Add the batches of a commit, in the order of their sequences.

        `places` are their offsets and sizes in the commit.
        """
        tasks = self._tasks
        with self._lock:
            for batch, (offset, size_bytes) in zip(batches, places, strict=True):
                entries = tasks.get(batch.task_id)
                if entries is None:
                    entries = tasks[batch.task_id] = _Entries()
                entries.firsts.append(batch.first_sequence)
                entries.commits.append(commit_id)
                entries.offsets.append(offset)
                entries.sizes.append(size_bytes)
                entries.head = batch.first_sequence + batch.count - 1
            if batches:
                self._needed_by[commit_id] += len(batches)

    def head(self, task_id: str) -> int | None:
        """Return the last sequence of a task. None: the task is not in the index."""
        entries = self._tasks.get(task_id)
        return None if entries is None else entries.head

    def find(self, task_id: str, after: int, *, limit_bytes: int) -> list[BatchPosition] | None:
        """Return positions of batches that end after `after`: one, and more up to the limit.

        None: the task is not in the index.
        """
        with self._lock:
            entries = self._tasks.get(task_id)
            if entries is None:
                return None
            if after >= entries.head:
                return []
            index = max(0, bisect_right(entries.firsts, after + 1) - 1)
            found = [entries.place(index)]
            total = found[0].size_bytes
            for behind in range(index + 1, len(entries.firsts)):
                total += entries.sizes[behind]
                if total > limit_bytes:
                    break
                found.append(entries.place(behind))
            return found

    def drop(self, task_ids: Iterable[str]) -> None:
        """Remove tasks. `release` then releases their commits in steps."""
        with self._lock:
            for task_id in task_ids:
                self._dropped.append(self._tasks.pop(task_id).commits)

    @property
    def has_dropped(self) -> bool:
        """Some commits of dropped tasks are not released yet."""
        return bool(self._dropped)

    def release(self, limit: int) -> list[int]:
        """Release up to `limit` batches of dropped tasks. Return the unneeded commits."""
        free: list[int] = []
        with self._lock:
            while self._dropped and limit > 0:
                commits = self._dropped[-1]
                released = commits[-limit:]
                del commits[-limit:]
                limit -= len(released)
                if not commits:
                    self._dropped.pop()
                for commit_id in released:
                    self._needed_by[commit_id] -= 1
                    if not self._needed_by[commit_id]:
                        del self._needed_by[commit_id]
                        free.append(commit_id)
        return free

    def needs_commit(self, commit_id: int) -> bool:
        """Return whether any batch in a commit is still needed."""
        return commit_id in self._needed_by


_FRAME: Final = struct.Struct(">I")


def pack_batches(batches: Iterable[bytes]) -> tuple[bytearray, list[tuple[int, int]]]:
    """Pack batches into one payload. Return it with the offset and size of each batch."""
    payload = bytearray()
    places = []
    for sealed in batches:
        payload += _FRAME.pack(len(sealed))
        places.append((len(payload), len(sealed)))
        payload += sealed
    return payload, places


def unpack_spans(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offset and size of each batch in a payload."""
    offset = 0
    while offset < len(payload):
        (size_bytes,) = _FRAME.unpack_from(payload, offset)
        offset += _FRAME.size
        yield offset, size_bytes
        offset += size_bytes
