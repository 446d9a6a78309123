"""A deadline ends a task whether it runs, waits or is queued."""

import asyncio
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
import uvloop

from harness.agents.inline_agents import (
    OpenHost,
    define,
    finish,
    start,
    status_texts,
    texts,
)
from harness.journal.host_death import kill_host, wait_until_slots_free
from trunkline.errors import PeerTimeoutError
from trunkline.tasks import deadlines
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State


def after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def wait_for_end_state(host: TaskHost, task_id: str) -> State.ValueType:
    """Wait until the task has ended, through any questions."""
    while not (row := await host.journal.row(task_id)).is_ended:
        await host.journal.wait(task_id, row.head)
    return row.state


async def test_a_task_whose_code_ignores_its_deadline_is_ended(open_host: OpenHost) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    refused: list[str] = []

    async def ignores_cancel(task: TaskContext) -> None:
        artifact = task.artifact()
        async with task.tool("math/calculate"):
            started.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
        try:
            await artifact.append("too late")
        except Exception as error:
            refused.append(type(error).__name__)
            raise

    host = await open_host(define(ignores_cancel))
    task_id = await start(host, deadline=after(600))
    await started.wait()
    # Move the deadline to the present.
    host.journals.primary.deadlines.add(task_id, datetime.now(UTC))
    async with asyncio.timeout(30):
        ended = await host.wait_turn(task_id)
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "deadline" in status_texts(ended)
    assert ended.tool_calls[0].finished.is_error
    code = [run for run in asyncio.all_tasks() if run.get_name() == task_id]
    release.set()
    await asyncio.wait(code)
    assert refused == ["InvalidAgentResponseError"]
    assert texts(await host.snapshot(task_id, account="")) == []


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_task_that_waits_for_input_ends_at_its_deadline(
    journal_path: Path, open_host: OpenHost, *, is_restarted: bool
) -> None:
    async def ask(task: TaskContext) -> None:
        await task.require_input("?")

    host = await open_host(define(ask))
    # A slow machine gets more time to ask its question.
    for seconds in (0.2, 2, 20):
        waiting = await finish(host, deadline=after(seconds))
        if waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED:
            break
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    if is_restarted:
        await kill_host(host)
        host = await open_host(define(ask))
    async with asyncio.timeout(30):
        assert await wait_for_end_state(host, waiting.task.id) == State.TASK_STATE_FAILED


async def test_a_queued_task_ends_at_its_deadline(open_host: OpenHost) -> None:
    release, executed = asyncio.Event(), []

    async def slow(task: TaskContext) -> None:
        executed.append(task.text)
        await release.wait()

    host = await open_host(define(slow, concurrency=1))
    first = await start(host, "first")
    queued = await start(host, "queued", deadline=after(0.1))
    async with asyncio.timeout(30):
        assert await wait_for_end_state(host, queued) == State.TASK_STATE_FAILED
    release.set()
    await host.wait_turn(first)
    assert executed == ["first"]


async def test_a_direct_reply_times_out_at_its_deadline(open_host: OpenHost) -> None:
    async def endless(task: TaskContext) -> None:
        await asyncio.Event().wait()

    host = await open_host(define(endless, direct_replies=True))
    with pytest.raises(PeerTimeoutError, match="deadline"):
        async with asyncio.timeout(30):
            await start(host, deadline=after(0.1))
    async with asyncio.timeout(30):
        await wait_until_slots_free(host)


async def test_nothing_expires_early_if_the_process_stops_between_clock_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delay_s = 0.05

    class DelayedClock(datetime):
        """A clock whose reads the machine delays."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            time.sleep(delay_s)
            return datetime.now(tz)

    monkeypatch.setattr(deadlines, "datetime", DelayedClock)
    expired: asyncio.Future[datetime] = asyncio.get_running_loop().create_future()
    timer = deadlines.DeadlineTimer(lambda _: expired.set_result(datetime.now(UTC)))
    deadline = datetime.now(UTC) + timedelta(seconds=2 * delay_s)
    timer.add("task", deadline)
    async with asyncio.timeout(30):
        assert await expired > deadline - timedelta(seconds=delay_s / 2)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_deadline_that_is_due_is_followed_by_others(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def expire_both() -> list[str]:
        expired: asyncio.Queue[str] = asyncio.Queue()
        timer = deadlines.DeadlineTimer(expired.put_nowait)
        now = datetime.now(UTC)
        for task_id, ago_s in (("first", 0.5), ("second", 1)):
            timer.add(task_id, now - timedelta(seconds=ago_s))
        async with asyncio.timeout(60):
            return [await expired.get(), await expired.get()]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(expire_both()) == ["second", "first"]


class TaskId(str):
    """An id of which the test sees whether the timer still has it."""


async def test_met_deadlines_are_forgotten() -> None:
    timer = deadlines.DeadlineTimer(lambda _: None)
    ids: list[weakref.ref[TaskId]] = []
    for number in range(300):
        task_id = TaskId(number)
        ids.append(weakref.ref(task_id))
        timer.add(task_id, after(600))
        timer.discard(task_id)
    del task_id
    assert sum(known() is not None for known in ids) < 100
    timer.close()
