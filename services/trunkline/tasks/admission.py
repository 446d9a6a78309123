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

# The rate is measured over at most this many turns, none of them older than that.
_PACE_TURNS: Final = 64
_PACE_S: Final = 60.0
_LONGEST_WAIT_S: Final = 300


class CompletionRate:
    """The rate at which turns have ended recently."""

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=_PACE_TURNS)

    def record(self) -> None:
        """A turn has ended."""
        self._ends.append(time.monotonic())

    def estimate_wait_s(self, turns: int) -> int:
        """Estimate how long it takes until so many more have ended: at least 1."""
        now_s = time.monotonic()
        while len(self._ends) > 1 and self._ends[0] < now_s - _PACE_S:
            self._ends.popleft()
        if not self._ends:
            return 1
        each_s = (now_s - self._ends[0]) / len(self._ends)
        return max(1, min(_LONGEST_WAIT_S, math.ceil(each_s * turns)))


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
        self._pace = CompletionRate()

    def check(self) -> None:
        """Refuse at once what could only wait in a full queue.

        Raises:
            OverloadedError: the queue is full; it says when what waits now will have run.
        """
        if self._limit is not None and self._accepted >= self._limit + self._queue_limit:
            wait_s = self._pace.estimate_wait_s(self._accepted - self._limit + 1)
            raise OverloadedError(self._agent, str(wait_s))

    def accept(self) -> None:
        """Count a turn in, from before it is journaled until it has left."""
        self._accepted += 1

    def release(self) -> None:
        """Count it out: its code has ended."""
        self._accepted -= 1
        self._pace.record()

    @asynccontextmanager
    async def enter(self, priority: int) -> AsyncIterator[None]:
        """Wait for a place, higher priority first and then first come; hold it inside."""
        if self._limit is not None and self._limit <= self._running:
            await self._wait(priority)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, priority: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            # The place may have been handed over in the same moment: pass it on.
            if turn.done() and not turn.cancelled():
                self._pass_on()
            else:
                self._waiting = [entry for entry in self._waiting if entry[2] is not turn]
                heapq.heapify(self._waiting)
            raise

    def _pass_on(self) -> None:
        """Give the slot to the first waiter, or free it."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1


class AdmissionControl:
    """The admissions of all agents of a process, whichever journal their tasks are in."""

    def __init__(self, agents: Sequence[Agent], settings: TaskSettings) -> None:
        self._limit = settings.task_limit
        self._accepted = 0
        self._pace = CompletionRate()
        self._by_agent = {
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
        """Refuse at once what there is no room for.

        Children get in where others don't: they are bounded by their parents, which hold their
        places until their children have ended.

        Raises:
            OverloadedError: it says when trying again makes sense.
        """
        if self._accepted >= self._limit and not is_child:
            wait_s = self._pace.estimate_wait_s(self._accepted - self._limit + 1)
            raise OverloadedError(agent, str(wait_s))
        self._by_agent[agent].check()

    def accept(self, agent: str) -> AgentQueue:
        """Count a turn in; the caller must count it out with `release`."""
        admission = self._by_agent[agent]
        admission.accept()
        self._accepted += 1
        return admission

    def release(self, admission: AgentQueue) -> None:
        """Count a turn out: its code has ended, or it was never made."""
        admission.release()
        self._accepted -= 1
        self._pace.record()
