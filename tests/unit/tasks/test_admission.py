"""Load beyond the capacity of a host is refused at once, and memory does not grow."""

import asyncio
import gc
import time
from collections import Counter
from typing import Any

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, message
from harness.journal.host_death import wait_until_slots_free
from harness.remote.measurements import measuring
from trunkline.core.settings import Settings
from trunkline.errors import OverloadedError
from trunkline.tasks.admission import Admission, AgentQueue, CompletionRate
from trunkline.tasks.context import TaskContext
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.execution import TaskExecution
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_service_pb2

PATIENCE_S = 30.0
TASK_TYPES = (TaskContext, TurnRuntime, Emitter, TaskExecution)


def count_task_objects() -> Counter[str]:
    """Count the objects that tasks consist of, including those of earlier tests."""
    return Counter(type(item).__name__ for item in gc.get_objects() if type(item) in TASK_TYPES)


async def flood(host: TaskHost, times: int) -> tuple[list[str], list[OverloadedError]]:
    """Submit this many messages at once; return the accepted tasks and the refusals."""
    accepted: list[str] = []
    refused: list[OverloadedError] = []

    async def submit() -> None:
        try:
            result = await host.submit("tested", message(), NOTHING)
        except OverloadedError as error:
            refused.append(error)
        else:
            assert isinstance(result, SubmitResult)
            accepted.append(result.task_id)

    async with asyncio.TaskGroup() as group:
        for _ in range(times):
            group.create_task(submit())
    return accepted, refused


async def test_ten_times_the_capacity_is_refused_and_leaves_nothing_behind(
    open_host: OpenHost,
) -> None:
    running = highest = 0

    async def work(task: TaskContext) -> str:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0)
        running -= 1
        return "done"

    settings = Settings(queue_limit=16)
    host = await open_host(define(work, concurrency=4), settings=settings)
    await flood(host, 1)
    await wait_until_slots_free(host)
    gc.collect()
    gc.disable()
    try:
        before = count_task_objects()
        for _ in range(3):
            accepted, refused = await flood(host, 200)
            # One burst is accepted in one iteration of the loop, so it can't exceed the queue
            # limit.
            assert (len(accepted), len(refused)) == (20, 180)
            assert all(int(error.retry_after_s) >= 1 for error in refused)
            for task_id in accepted:
                ended = await host.wait_turn(task_id)
                assert ended.task.status.state == State.TASK_STATE_COMPLETED
            await wait_until_slots_free(host)
            del refused
        assert highest == 4
        assert count_task_objects() - before == Counter()
    finally:
        gc.enable()
    assert not [task for task in asyncio.all_tasks() if task.get_name() in accepted]


async def test_a_host_limits_its_turns_but_accepts_children(
    open_host: OpenHost,
) -> None:
    release = asyncio.Event()

    async def wait(task: TaskContext) -> None:
        await release.wait()

    host = await open_host(define(wait), settings=Settings(task_limit=3))
    with measuring() as measured:
        accepted, refused = await flood(host, 5)
        assert (len(accepted), len(refused)) == (3, 2)
        assert measured.of("trunkline.admission.refused") == {("tested", "OVERLOADED"): 2}
        assert measured.of("trunkline.admission.running") == {("tested",): 3}
    child = message_service_pb2.Submission(parent=event_pb2.ParentTask(task_id="p"))
    assert isinstance(await host.submit("tested", message(), child), SubmitResult)
    release.set()
    await wait_until_slots_free(host)
    assert len((await flood(host, 1))[0]) == 1


async def test_direct_replies_leave_nothing_behind(open_host: OpenHost) -> None:
    async def reply(task: TaskContext) -> Any:
        return task.message

    host = await open_host(define(reply, direct_replies=True))
    await host.submit("tested", message(), NOTHING)
    await wait_until_slots_free(host)
    gc.collect()
    gc.disable()
    try:
        before = count_task_objects()
        for _ in range(50):
            await host.submit("tested", message(), NOTHING)
        await wait_until_slots_free(host)
        assert count_task_objects() - before == Counter()
    finally:
        gc.enable()


def test_retry_after_is_estimated_from_recent_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    rate = CompletionRate()
    assert rate.estimate_wait_s(100) == 1
    for _ in range(10):
        now_s += 0.5
        rate.record()
    assert rate.estimate_wait_s(20) == 9
    assert rate.estimate_wait_s(1) == 1
    assert rate.estimate_wait_s(10**6) == 300


async def test_a_turn_that_only_waits_lets_another_one_run() -> None:
    queue = AgentQueue("tested", limit=1, queue_limit=8)
    waits, ends = asyncio.Event(), asyncio.Event()
    first, second = Admission(queue, "acme"), Admission(queue, "acme")
    order: list[str] = []

    async def wait_for_the_other() -> None:
        async with queue.enter(first, 0):
            async with queue.leave(first, 0):
                waits.set()
                await ends.wait()
            order.append("first")

    async def run() -> None:
        await waits.wait()
        async with queue.enter(second, 0):
            ends.set()
            await asyncio.sleep(0)
            order.append("second")

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for admission in (first, second):
            queue.accept(admission.account)
        group.create_task(wait_for_the_other())
        group.create_task(run())
    assert order == ["second", "first"]


async def test_a_waiting_turn_that_is_canceled_gives_no_place_back_twice() -> None:
    queue = AgentQueue("tested", limit=1, queue_limit=8)
    admission = Admission(queue, "acme")
    waits = asyncio.Event()

    async def wait() -> None:
        async with queue.enter(admission, 0), queue.leave(admission, 0):
            waits.set()
            await asyncio.Event().wait()

    queue.accept("acme")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wait())
        await waits.wait()
        waiting.cancel()
    entered: list[str] = []

    async def enter(name: str) -> None:
        async with queue.enter(Admission(queue, "acme"), 0):
            entered.append(name)
            await asyncio.sleep(0)
            assert len(entered) == int(name), "two turns ran at once"

    async with asyncio.TaskGroup() as group:
        for name in ("1", "2"):
            queue.accept("acme")
            group.create_task(enter(name))
    assert entered == ["1", "2"]
