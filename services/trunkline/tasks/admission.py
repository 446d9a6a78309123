"""Admission control: concurrency limits of agents, and bounded queues that are fair to accounts."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from trunkline.core.settings import Settings
from trunkline.errors import LimitExceededError, OverloadedError
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading
from trunkline.tasks.agent import Agent
from trunkline.tasks.fair_queue import AccountCounts, FairQueue, has_room

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
    """Admits the turns of one agent: at most `limit` at once.

    At most `queue_limit` turns of one account wait, and at most twice as many in all; see
    `has_room`. Accounts enter in turn.
    """

    def __init__(self, agent: str, *, limit: int | None, queue_limit: int) -> None:
        self._agent = agent
        self._limit = limit
        self._queue_limit = queue_limit
        self._accepted = 0
        self._running = 0
        # The accepted turns that do not run yet.
        self._pending = AccountCounts()
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._completions = CompletionRate()
        instruments.TURNS_RUNNING.watch(self, AgentQueue._count_running)
        instruments.TURNS_WAITING.watch(self, AgentQueue._count_waiting)
        for error in (OverloadedError, LimitExceededError):
            instruments.TURNS_REFUSED.begin(agent, error.reason)

    def check(self, account: str) -> None:
        """Check that the queue has room for one more turn of an account.

        Raises:
            OverloadedError: it has no room; `retry_after_s` estimates when it has room.
        """
        if self._limit is None or self._accepted < self._limit:
            return
        used = self._accepted - self._limit
        if not has_room(used=used, limit=self._queue_limit, own=self._pending.get(account)):
            wait_s = self._completions.estimate_wait_s(used + 1)
            raise OverloadedError(self._agent, str(wait_s))

    def accept(self, account: str) -> None:
        """Count a turn as accepted, before it is journaled."""
        self._accepted += 1
        self._pending.add(account)

    def release(self, admission: "Admission") -> None:
        """Count an accepted turn as ended."""
        self._accepted -= 1
        self._mark_entered(admission)
        self._completions.record()

    @asynccontextmanager
    async def enter(self, admission: "Admission", priority: int) -> AsyncIterator[None]:
        """Run a block as one of `limit` turns.

        Turns of one account enter by priority, then in order.
        """
        await self._take_place(admission, priority)
        try:
            yield
        finally:
            self._give_place(admission)

    @asynccontextmanager
    async def leave(self, admission: "Admission", priority: int) -> AsyncIterator[None]:
        """Let another turn run during a block that only waits, and enter again after the block.

        A turn that waits for another one would otherwise keep the other turn's place.
        """
        self._give_place(admission)
        yield
        await self._take_place(admission, priority)

    async def _take_place(self, admission: "Admission", priority: int) -> None:
        if self._limit is not None and self._limit <= self._running:
            await self._wait(admission.account, priority)
        else:
            self._running += 1
        admission.has_place = True
        self._mark_entered(admission)

    def _give_place(self, admission: "Admission") -> None:
        if admission.has_place:
            admission.has_place = False
            self._admit_next()

    def _count_running(self) -> Sequence[Reading]:
        return [((self._agent,), self._running)] if self._accepted else ()

    def _count_waiting(self) -> Sequence[Reading]:
        waiting = self._accepted - self._running
        return [((self._agent,), waiting)] if waiting > 0 else ()

    async def _wait(self, account: str, priority: int) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.push(account, waiter, priority=priority)
        try:
            await waiter
        except asyncio.CancelledError:
            # The turn may have been admitted just before the cancellation.
            if waiter.done() and not waiter.cancelled():
                self._admit_next()
            else:
                self._waiting.remove(account, waiter)
            raise

    def _admit_next(self) -> None:
        """Admit the next waiter in place of a turn that has ended."""
        while self._waiting:
            waiter = self._waiting.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._running -= 1

    def _mark_entered(self, admission: "Admission") -> None:
        if admission.is_pending:
            admission.is_pending = False
            self._pending.subtract(admission.account)


class Admission:
    """A turn that was accepted and has not ended."""

    __slots__ = ("account", "has_place", "is_pending", "queue")

    def __init__(self, queue: AgentQueue, account: str) -> None:
        self.queue: AgentQueue = queue
        self.account: str = account
        self.is_pending: bool = True
        self.has_place: bool = False


class AdmissionControl:
    """The admission queues of all agents of a process, shared by all of its journals."""

    def __init__(self, agents: Sequence[Agent], settings: Settings) -> None:
        self._limit = settings.task_limit
        self._limits = settings.limits
        self._accepted = 0
        self._turns = AccountCounts()
        self._completions = CompletionRate()
        self._queues = {
            agent.card.name: AgentQueue(
                agent.card.name, limit=agent.concurrency, queue_limit=settings.queue_limit
            )
            for agent in agents
        }

    @property
    def open_turns(self) -> int:
        """The number of turns that were accepted and have not ended."""
        return self._accepted

    def check(self, agent: str, account: str, *, is_child: bool) -> None:
        """Check that the host has room for one more turn of an agent, for an account.

        Children are exempt from the limits of the host and of the account: their number is bounded
        by their parents, which run until their children have ended.

        Raises:
            OverloadedError: it has no room; `retry_after_s` estimates when it has room.
            LimitExceededError: the account has as many tasks here as it may.
        """
        try:
            if not is_child:
                self._check_account(account)
                self._check_host(agent, account)
            self._queues[agent].check(account)
        except (OverloadedError, LimitExceededError) as error:
            instruments.TURNS_REFUSED.add(1, agent, error.reason)
            raise

    def accept(self, agent: str, account: str) -> Admission:
        """Count a turn as accepted; the caller must call `release` for it."""
        queue = self._queues[agent]
        queue.accept(account)
        self._accepted += 1
        self._turns.add(account)
        return Admission(queue, account)

    def release(self, admission: Admission) -> None:
        """Count an accepted turn as ended, or as never created."""
        admission.queue.release(admission)
        self._accepted -= 1
        self._turns.subtract(admission.account)
        self._completions.record()

    def _check_host(self, agent: str, account: str) -> None:
        """Check the limit of turns of this host."""
        own = self._turns.get(account)
        if not has_room(used=self._accepted, limit=self._limit, own=own):
            wait_s = self._completions.estimate_wait_s(self._accepted - self._limit + 1)
            raise OverloadedError(agent, str(wait_s))

    def _check_account(self, account: str) -> None:
        """Check the limit of tasks of an account."""
        limit = self._limits.of_account(account).tasks
        if limit is not None and self._turns.get(account) >= limit:
            wait_s = self._completions.estimate_wait_s(self._turns.get(account) - limit + 1)
            problem = f"account {account!r} has {limit} running tasks, and may have no more"
            raise LimitExceededError(problem, str(wait_s))
