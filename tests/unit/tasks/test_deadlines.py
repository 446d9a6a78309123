"""A deadline ends a task whatever it does, and holds while it waits."""

import asyncio
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import (
    NOTHING,
    OpenHost,
    define,
    finish,
    message,
    status_texts,
    texts,
)
from harness.journal.host_death import wait_until_slots_free
from trunkline.errors import PeerTimeoutError
from trunkline.journal.journal import Journal
from trunkline.tasks import deadlines
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import message_service_pb2


def within(seconds: float) -> message_service_pb2.Submission:
    """A submission whose task ends at the latest so soon."""
    submission = message_service_pb2.Submission()
    submission.deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=seconds))
    return submission


async def accept(
    host: TaskHost, submission: message_service_pb2.Submission, text: str = "hello"
) -> str:
    accepted = await host.submit("tested", message(text), submission)
    assert isinstance(accepted, SubmitResult)
    return accepted.task_id


async def ended_state(host: TaskHost, task_id: str) -> State.ValueType:
    """Wait until the task has ended, questions or not."""
    while not (row := host.journal.row(task_id)).is_ended:
        await host.journal.wait(task_id, row.head)
    return row.state


async def test_code_that_ignores_its_deadline_is_ended_without_it(open_host: OpenHost) -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    refused: list[str] = []

    async def deaf(task: TaskContext) -> None:
        artifact = task.artifact()
        async with task.tool("math/calculate"):
            begun.set()
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

    host = await open_host(define(deaf))
    task_id = await accept(host, within(600))
    await begun.wait()
    # Time flies.
    host.primary._deadlines.add(task_id, datetime.now(UTC))
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


async def test_a_task_that_waits_for_input_ends_at_its_deadline(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> None:
        await task.require_input("?")

    host = await open_host(define(ask))
    # A slow machine gets more time to ask.
    for seconds in (0.2, 2, 20):
        asked = await finish(host, deadline=datetime.now(UTC) + timedelta(seconds=seconds))
        if asked.task.status.state == State.TASK_STATE_INPUT_REQUIRED:
            break
    assert asked.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    async with asyncio.timeout(30):
        assert await ended_state(host, asked.task.id) == State.TASK_STATE_FAILED


async def test_a_question_keeps_its_deadline_over_the_end_of_its_host(
    journal_path: Path, open_host: OpenHost
) -> None:
    async def ask(task: TaskContext) -> None:
        await task.require_input("?")

    journal = Journal.open(journal_path)
    async with TaskHost(journal, [define(ask)]) as host:
        asked = await finish(host, deadline=datetime.now(UTC) + timedelta(seconds=1))
    journal.close()
    again = await open_host(define(ask))
    async with asyncio.timeout(30):
        assert await ended_state(again, asked.task.id) == State.TASK_STATE_FAILED


async def test_a_task_in_the_queue_ends_at_its_deadline(open_host: OpenHost) -> None:
    release, ran = asyncio.Event(), []

    async def slow(task: TaskContext) -> None:
        ran.append(task.text)
        await release.wait()

    host = await open_host(define(slow, concurrency=1))
    first = await accept(host, NOTHING, "first")
    queued = await accept(host, within(0.1), "queued")
    async with asyncio.timeout(30):
        assert await ended_state(host, queued) == State.TASK_STATE_FAILED
    release.set()
    await host.wait_turn(first)
    assert ran == ["first"]


@pytest.mark.parametrize(("own_s", "asked_s"), [(0.2, None), (0.2, 600.0), (600.0, 0.2)])
async def test_of_two_deadlines_the_earlier_holds(
    open_host: OpenHost, own_s: float, asked_s: float | None
) -> None:
    async def endless(task: TaskContext) -> None:
        await asyncio.Event().wait()

    host = await open_host(define(endless, timeout_s=own_s))
    task_id = await accept(host, NOTHING if asked_s is None else within(asked_s))
    async with asyncio.timeout(30):
        ended = await host.wait_turn(task_id)
    assert "deadline" in status_texts(ended)


async def test_an_answer_that_is_no_task_yet_is_late_at_its_deadline(open_host: OpenHost) -> None:
    async def endless(task: TaskContext) -> None:
        await asyncio.Event().wait()

    host = await open_host(define(endless, direct_replies=True))
    with pytest.raises(PeerTimeoutError, match="deadline"):
        async with asyncio.timeout(30):
            await host.submit("tested", message(), within(0.1))
    async with asyncio.timeout(30):
        await wait_until_slots_free(host)


async def test_nothing_expires_early_though_the_process_is_stopped_between_two_looks_at_a_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped_s = 0.2

    class StoppedBeforeIt(datetime):
        """A clock that the machine lets the process look at only after a while."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            time.sleep(stopped_s)
            return datetime.now(tz)

    monkeypatch.setattr(deadlines, "datetime", StoppedBeforeIt)
    over: asyncio.Future[datetime] = asyncio.get_running_loop().create_future()
    one = deadlines.DeadlineTimer(lambda _: over.set_result(datetime.now(UTC)))
    deadline = datetime.now(UTC) + timedelta(seconds=2 * stopped_s)
    one.add("task", deadline)
    async with asyncio.timeout(30):
        assert await over > deadline - timedelta(seconds=stopped_s / 2)


async def test_a_deadline_leaves_nothing_behind(open_host: OpenHost) -> None:
    async def brief(task: TaskContext) -> str:
        return "done"

    host = await open_host(define(brief))
    deadline = datetime.now(UTC) + timedelta(seconds=600)
    fields: dict[str, Any] = {"deadline": deadline}
    for _ in range(300):
        await finish(host, **fields)
    await wait_until_slots_free(host)
    assert not host.primary._deadlines._due
    assert len(host.primary._deadlines._heap) < 100
