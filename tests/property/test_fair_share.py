"""However accounts flood an agent, they are served in turn, and none takes the room of another."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import OverloadedError
from trunkline.tasks.admission import Admission, AgentQueue
from trunkline.tasks.fair_queue import FairQueue

ACCOUNTS = ("a", "b", "c", "d")
# A turn of an account with a priority; None: one turn ends.
STEPS = st.lists(
    st.none() | st.tuples(st.sampled_from(ACCOUNTS), st.integers(0, 2)), min_size=1, max_size=80
)


@given(STEPS)
def test_between_two_items_of_an_account_every_waiting_account_is_served(
    steps: list[tuple[str, int] | None],
) -> None:
    queue: FairQueue[tuple[str, int, int]] = FairQueue()
    waiting: list[tuple[str, int, int]] = []
    # By account that waits: how often each other account was served since it began to wait.
    served: dict[str, Counter[str]] = {}
    for number, step in enumerate(steps):
        if step is not None:
            account, priority = step
            item = (account, priority, number)
            queue.push(account, item, priority=priority)
            waiting.append(item)
            served.setdefault(account, Counter())
        elif queue:
            item = queue.pop()
            waiting.remove(item)
            own = [other for other in waiting if other[0] == item[0]]
            assert all((-item[1], item[2]) < (-other[1], other[2]) for other in own)
            del served[item[0]]
            for counts in served.values():
                counts[item[0]] += 1
                # One account delays another by one turn at most.
                assert counts[item[0]] == 1
            if own:
                served[item[0]] = Counter()
    assert bool(queue) is bool(waiting)


class Simulation:
    """An agent's queue with turns that end on demand."""

    def __init__(self, *, limit: int, queue_limit: int) -> None:
        self.queue = AgentQueue("tested", limit=limit, queue_limit=queue_limit)
        self.waiting: Counter[str] = Counter()
        self.running: list[tuple[Admission, asyncio.Event]] = []
        self._turns: asyncio.TaskGroup = asyncio.TaskGroup()
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        await self._stack.enter_async_context(self._turns)

    async def close(self) -> None:
        while self.running:
            await self.end_turn()
        await self._stack.aclose()

    async def submit(self, account: str, priority: int) -> bool:
        try:
            self.queue.check(account)
        except OverloadedError:
            return False
        self.queue.accept(account)
        self.waiting[account] += 1
        self._turns.create_task(self._run(Admission(self.queue, account), priority))
        await self._settle()
        return True

    async def end_turn(self) -> None:
        if self.running:
            self.running.pop(0)[1].set()
            await self._settle()

    async def _run(self, admission: Admission, priority: int) -> None:
        async with admission.queue.enter(admission, priority):
            self.waiting[admission.account] -= 1
            ended = asyncio.Event()
            self.running.append((admission, ended))
            await ended.wait()
        self.queue.release(admission)

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@given(STEPS, st.integers(1, 3), st.integers(0, 6))
def test_a_queue_is_bounded_and_leaves_room(
    steps: list[tuple[str, int] | None], limit: int, queue_limit: int
) -> None:
    async def simulate() -> None:
        simulation = Simulation(limit=limit, queue_limit=queue_limit)
        await simulation.open()
        for step in steps:
            if step is None:
                await simulation.end_turn()
                continue
            account, priority = step
            own, all_waiting = simulation.waiting[account], simulation.waiting.total()
            has_slot = len(simulation.running) < limit
            accepted = await simulation.submit(account, priority)
            assert len(simulation.running) <= limit
            assert simulation.waiting.total() <= 2 * queue_limit
            assert simulation.waiting[account] <= queue_limit
            if own == all_waiting:
                # An account that waits alone has the whole queue.
                assert accepted is (has_slot or own < queue_limit)
            if own == 0 and all_waiting < 2 * queue_limit:
                # A place is free, so an account with nothing in the queue gets it.
                assert accepted
        await simulation.close()
        assert simulation.waiting.total() == 0

    asyncio.run(simulate())
