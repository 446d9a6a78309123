"""Fairness among accounts: a queue that serves them in turn, and a rule for its places."""

import heapq
import itertools
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue that serves accounts round-robin.

    The items of one account come by priority, then in order. So an account's first item waits for
    at most one item of each other account, however many items they have, and priorities give an
    account no advantage over others.
    """

    def __init__(self) -> None:
        # The account that is served next is the first.
        self._heaps: OrderedDict[str, list[tuple[int, int, T]]] = OrderedDict()
        self._order = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def push(self, account: str, item: T, *, priority: int = 0) -> None:
        """Add an item of an account. An account that has no other is served last."""
        heap = self._heaps.setdefault(account, [])
        heapq.heappush(heap, (-priority, next(self._order), item))

    def pop(self) -> T:
        """Remove and return the next item of the account whose turn it is."""
        account, heap = next(iter(self._heaps.items()))
        item = heapq.heappop(heap)[2]
        if heap:
            self._heaps.move_to_end(account)
        else:
            del self._heaps[account]
        return item

    def remove(self, account: str, item: T) -> None:
        """Remove an item of an account; a missing one is ignored."""
        heap = [entry for entry in self._heaps.get(account, ()) if entry[2] is not item]
        if heap:
            heapq.heapify(heap)
            self._heaps[account] = heap
        else:
            self._heaps.pop(account, None)


class AccountCounts:
    """Numbers by account. An account with the number 0 takes no memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def get(self, account: str) -> int:
        """Return the number of an account."""
        return self._counts.get(account, 0)

    def add(self, account: str) -> None:
        """Add 1 to the number of an account."""
        self._counts[account] = self._counts.get(account, 0) + 1

    def subtract(self, account: str) -> None:
        """Subtract 1 from the number of an account."""
        count = self._counts[account] - 1
        if count:
            self._counts[account] = count
        else:
            del self._counts[account]


def has_room(*, used: int, limit: int, own: int) -> bool:
    """Return whether an account that uses `own` of the `used` places may take another place.

    An account alone may take `limit` places. So that it leaves room for others, there are twice as
    many, and above `limit` an account may use fewer than are free. This is the dynamic threshold of
    Choudhury and Hahne for the queues of a shared buffer.
    """
    return used < limit or own < 2 * limit - used
