"""Admission control: concurrency limits of agents, and bounded queues with priorities."""

import asyncio
import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from trunkline.errors import OverloadedError
from trunkline.tasks.agent import Agent
from trunkline.tasks.settings import TaskSettings

# The rate is measured over the latest turns: at most so many, and none that is older.
_RATE_WINDOW_TURNS: Final = 64
_RATE_WINDOW_S: Final = 60.0
_MAX_WAIT_S: Final = 300


class CompletionRate:
    """The rate at which turns have ended recently."""

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=_RATE_WINDOW_TURNS)

    def record(self) -> None:
        """Record the end of a turn."""
        self._ends.append(time.monotonic())

    def estimate_wait_s(self, turns: int) -> int:
        """Estimate the seconds until `turns` more turns have ended, from 1 to 300."""
        now_s = time.monotonic()
        while len(self._ends) > 1 and self._ends[0] < now_s - _RATE_WINDOW_S:
            self._ends.popleft()
        if not self._ends:
            return 1
        turn_s = (now_s - self._ends[0]) / len(self._ends)
        return max(1, min(_MAX_WAIT_S, math.ceil(turn_s * turns)))


class AgentQueue:
    """Admits the turns of one agent: at most `limit` at once, at most `queue_limit` waiting."""

    def __init__(self, agent: str, *, limit: int | None, queue_limit: int) -> None:
        self._agent = agent
        self._limit = limit
        self._queue_limit = queue_limit
        self._accepted = 0
        self._running = 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._completions = CompletionRate()

    def check(self) -> None:
        """Check that the queue has room for one more turn.

        Raises:
            OverloadedError: the queue is full; `retry_after_s` estimates when it has room.
        """
        if self._limit is not None and self._accepted >= self._limit + self._queue_limit:
            wait_s = self._completions.estimate_wait_s(self._accepted - self._limit + 1)
            raise OverloadedError(self._agent, str(wait_s))

    def accept(self) -> None:
        """Count a turn as accepted, before it is journaled."""
        self._accepted += 1

    def release(self) -> None:
        """Count an accepted turn as ended."""
        self._accepted -= 1
        self._completions.record()

    @asynccontextmanager
    async def enter(self, priority: int) -> AsyncIterator[None]:
        """Run a block as one of `limit` turns. Waiters enter by priority, then in order."""
        if self._limit is not None and self._limit <= self._running:
            await self._wait(priority)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._admit_next()

    async def _wait(self, priority: int) -> None:
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._order), waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            # The turn may have been admitted just before the cancellation.
            if waiter.done() and not waiter.cancelled():
                self._admit_next()
            else:
                self._waiting = [entry for entry in self._waiting if entry[2] is not waiter]
                heapq.heapify(self._waiting)
            raise

    def _admit_next(self) -> None:
        """Admit the first waiter in place of a turn that has ended."""
        while self._waiting:
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)
                return
        self._running -= 1


class AdmissionControl:
    """The admission queues of all agents of a process, shared by all of its journals."""

    def __init__(self, agents: Sequence[Agent], settings: TaskSettings) -> None:
        self._limit = settings.task_limit
        self._accepted = 0
        self._completions = CompletionRate()
        self._queues = {
            agent.card.name: AgentQueue(
                agent.card.name, limit=agent.concurrency, queue_limit=settings.queue_limit
            )
            for agent in agents
        }

    @property
    def active_turns(self) -> int:
        """The number of turns that run or wait now."""
        return self._accepted

    def check(self, agent: str, *, is_child: bool) -> None:
        """Check that the host has room for one more turn of an agent.

        Children are exempt from the limit of the host: their number is bounded by their parents,
        which run until their children have ended.

        Raises:
            OverloadedError: no room; `retry_after_s` estimates when there is some.
        """
        if self._accepted >= self._limit and not is_child:
            wait_s = self._completions.estimate_wait_s(self._accepted - self._limit + 1)
            raise OverloadedError(agent, str(wait_s))
        self._queues[agent].check()

    def accept(self, agent: str) -> AgentQueue:
        """Count a turn as accepted; the caller must call `release` for it."""
        queue = self._queues[agent]
        queue.accept()
        self._accepted += 1
        return queue

    def release(self, queue: AgentQueue) -> None:
        """Count an accepted turn as ended, or as never created."""
        queue.release()
        self._accepted -= 1
        self._completions.record()
