"""Knows of nearly every id that is no task's without a look into the file."""

from collections.abc import Iterable
from typing import Final

# 1 MiB: of 400,000 tasks, an id that is no task's is looked up in vain once in a hundred times.
_BITS: Final = 8 * 1024 * 1024
_MASK: Final = _BITS - 1
_SHIFT: Final = 23


class TaskIdFilter:
    """A Bloom filter of the ids that there are.

    Each new task is asked for before it is made, and a look costs as much as the rest of that.
    Ids that are gone stay in it: they are looked up in vain.
    """

    def __init__(self) -> None:
        self._bits = bytearray(_BITS // 8)

    def add(self, task_ids: Iterable[str]) -> None:
        """Hold these as well."""
        bits = self._bits
        for task_id in task_ids:
            number = hash(task_id)
            for _ in range(2):
                bits[(number & _MASK) >> 3] |= 1 << (number & 7)
                number >>= _SHIFT

    def might_contain(self, task_id: str) -> bool:
        """Return False only if it was never added."""
        bits = self._bits
        number = hash(task_id)
        for _ in range(2):
            if not bits[(number & _MASK) >> 3] & 1 << (number & 7):
                return False
            number >>= _SHIFT
        return True
