"""Who runs now and who waits: per-agent limits and a bounded queue with priorities."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trunkline.errors import OverloadedError


class Admission:
    """Admits the turns of one agent: at most `limit` at once, at most `queue_limit` waiting."""

    def __init__(self, agent: str, *, limit: int, queue_limit: int) -> None:
        self._agent = agent
        self._limit = limit
        self._queue_limit = queue_limit
        self._running = 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def check(self) -> None:
        """Refuse at once what could only wait in a full queue.

        Raises:
            OverloadedError: the queue is full.
        """
        if self._is_full and len(self._waiting) >= self._queue_limit:
            raise OverloadedError(self._agent, "1")

    @asynccontextmanager
    async def enter(self, priority: int) -> AsyncIterator[None]:
        """Wait for a place, higher priority first and then first come; hold it inside."""
        if self._is_full:
            await self._wait(priority)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._leave()

    @property
    def _is_full(self) -> bool:
        return 0 < self._limit <= self._running

    async def _wait(self, priority: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            # The place may have been handed over in the same moment: pass it on.
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                self._waiting = [entry for entry in self._waiting if entry[2] is not turn]
                heapq.heapify(self._waiting)
            raise

    def _leave(self) -> None:
        """Give the place to whoever waits, or back."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1
