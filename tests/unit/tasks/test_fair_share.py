"""An account that floods an agent or a host leaves room and slots for other accounts."""

import asyncio
import weakref
from collections import Counter

from harness.agents.inline_agents import OpenHost, define, message
from harness.journal.host_death import wait_until_slots_free
from trunkline.core.settings import LimitSettings, Settings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline.errors import LimitExceededError, OverloadedError, TrunklineError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.fair_queue import AccountCounts, FairQueue
from trunkline.tasks.host import TaskHost
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import event_pb2, message_service_pb2


async def submit(host: TaskHost, account: str, times: int = 1) -> list[TrunklineError]:
    """Submit messages of an account one after another; return the refusals."""
    refused: list[TrunklineError] = []
    for _ in range(times):
        try:
            await host.submit("tested", message(), message_service_pb2.Submission(account=account))
        except (OverloadedError, LimitExceededError) as error:
            refused.append(error)
    return refused


class Turnstile:
    """An agent's function that notes the account of each turn and waits to be released."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._passes = asyncio.Semaphore(0)
        self._has_started = asyncio.Condition()

    async def __call__(self, task: TaskContext) -> None:
        async with self._has_started:
            self.started.append(task.account)
            self._has_started.notify_all()
        await self._passes.acquire()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(10), self._has_started:
            await self._has_started.wait_for(lambda: len(self.started) >= count)

    def release(self, count: int = 1) -> None:
        for _ in range(count):
            self._passes.release()


async def test_a_flood_delays_the_first_task_of_another_account_by_one_turn(
    open_host: OpenHost,
) -> None:
    turnstile = Turnstile()

    async def work(task: TaskContext) -> None:
        await turnstile(task)

    host = await open_host(define(work, concurrency=1), settings=Settings(queue_limit=20))
    refused = await submit(host, "flood", 30)
    assert len(refused) == 9
    assert await submit(host, "small") == []
    assert await submit(host, "third") == []
    for count in range(1, 7):
        await turnstile.wait_for(count)
        turnstile.release()
    assert turnstile.started[:5] == ["flood", "flood", "small", "third", "flood"]
    turnstile.release(100)
    await wait_until_slots_free(host)
    assert Counter(turnstile.started) == {"flood": 21, "small": 1, "third": 1}


async def test_an_account_may_have_only_so_many_tasks_on_a_host(open_host: OpenHost) -> None:
    turnstile = Turnstile()

    async def work(task: TaskContext) -> None:
        await turnstile(task)

    limits = LimitSettings(tasks=2, account={"big": AccountLimitSettings(tasks=3)})
    host = await open_host(define(work), settings=Settings(limits=limits))
    (error,) = await submit(host, "small", 3)
    assert isinstance(error, LimitExceededError)
    assert (
        str(error) == "account 'small' has 2 running tasks, and may have no more; try again in 1 s"
    )
    assert len(await submit(host, "big", 5)) == 2
    child = message_service_pb2.Submission(
        account="small", parent=event_pb2.ParentTask(task_id="p")
    )
    await host.submit("tested", message(), child)
    turnstile.release(100)
    await wait_until_slots_free(host)
    assert await submit(host, "small", 2) == []


async def test_a_turn_that_is_canceled_while_it_waits_frees_its_place(open_host: OpenHost) -> None:
    turnstile = Turnstile()

    async def work(task: TaskContext) -> None:
        await turnstile(task)

    host = await open_host(define(work, concurrency=1), settings=Settings(queue_limit=1))
    submission = message_service_pb2.Submission(account="a")
    await host.submit("tested", message(), submission)
    waiting = await host.submit("tested", message(), submission)
    assert len(await submit(host, "a")) == 1
    assert isinstance(waiting, SubmitResult)
    await host.cancel(waiting.task_id, account="a")
    assert await submit(host, "a") == []
    turnstile.release(100)
    await wait_until_slots_free(host)
    assert turnstile.started == ["a", "a"]


def test_a_removed_item_is_not_served() -> None:
    queue: FairQueue[object] = FairQueue()
    first, second = object(), object()
    queue.push("a", first)
    queue.push("a", second)
    queue.remove("a", first)
    queue.remove("b", first)
    assert queue.pop() is second
    assert not queue
    queue.push("a", first)
    queue.remove("a", first)
    assert not queue


class Name(str):
    """A text of which the test sees whether an object still has it."""


def test_counts_forget_accounts_without_any() -> None:
    counts, account = AccountCounts(), Name("a")
    counts.add(account)
    counts.add("a")
    counts.subtract("a")
    assert (counts.get("a"), counts.get("b")) == (1, 0)
    forgotten = weakref.ref(account)
    del account
    assert forgotten() is not None
    counts.subtract("a")
    assert forgotten() is None
