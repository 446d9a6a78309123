"""A Bloom filter of task ids, which saves most lookups of ids that do not exist."""

from collections.abc import Iterable
from typing import Final

# 1 MiB: with 400,000 tasks, the filter passes one percent of the unknown ids.
_BITS: Final = 8 * 1024 * 1024
_MASK: Final = _BITS - 1
# The number of bits in the mask. The two hashes are disjoint parts of one hash.
_SHIFT: Final = 23


class TaskIdFilter:
    """A Bloom filter of the known task ids.

    The journal looks up each new task before it creates the task, and a lookup in the file costs as
    much as the creation. The filter saves nearly all of these lookups.

    An id can't be removed, so ids of deleted tasks are still looked up.
    """

    def __init__(self) -> None:
        self._bits = bytearray(_BITS // 8)

    def add(self, task_ids: Iterable[str]) -> None:
        """Add task ids."""
        bits = self._bits
        for task_id in task_ids:
            number = hash(task_id)
            for _ in range(2):
                bits[(number & _MASK) >> 3] |= 1 << (number & 7)
                number >>= _SHIFT

    def might_contain(self, task_id: str) -> bool:
        """Return False only if the id was never added."""
        bits = self._bits
        number = hash(task_id)
        for _ in range(2):
            if not bits[(number & _MASK) >> 3] & 1 << (number & 7):
                return False
            number >>= _SHIFT
        return True
