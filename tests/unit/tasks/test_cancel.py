"""Cancel stops the agent's code, and a race with another end has one outcome."""

import asyncio

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
from trunkline.core.settings import Settings
from trunkline.errors import TaskNotCancelableError, TaskNotFoundError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2, message_pb2


async def start(host: TaskHost, text: str = "hello") -> str:
    accepted = await host.submit("tested", message(text), NOTHING)
    assert not isinstance(accepted, message_pb2.Message)
    return accepted.task_id


async def test_cancel_stops_the_code_and_keeps_its_output(open_host: OpenHost) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def endless(task: TaskContext) -> None:
        await task.artifact().append("so far")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    host = await open_host(define(endless))
    task_id = await start(host)
    await started.wait()
    snapshot = await host.cancel(task_id, account="", reason="changed my mind")
    assert stopped.is_set()
    assert snapshot.task.status.state == State.TASK_STATE_CANCELED
    assert (texts(snapshot), status_texts(snapshot)) == (["so far"], "changed my mind")


async def test_a_late_completion_never_overwrites_canceled(open_host: OpenHost) -> None:
    started = asyncio.Event()

    async def stubborn(task: TaskContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await task.complete("done after all")

    host = await open_host(define(stubborn))
    task_id = await start(host)
    await started.wait()
    await host.cancel(task_id, account="")
    assert (await host.snapshot(task_id, account="")).task.status.state == State.TASK_STATE_CANCELED


async def test_a_task_whose_code_ignores_the_cancel_is_canceled(open_host: OpenHost) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def ignores_cancel(task: TaskContext) -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    host = await open_host(define(ignores_cancel), settings=Settings(cancel_grace_s=0.05))
    task_id = await start(host)
    await started.wait()
    snapshot = await host.cancel(task_id, account="")
    assert snapshot.task.status.state == State.TASK_STATE_CANCELED
    release.set()


async def test_a_running_tool_call_is_finished_on_cancel(open_host: OpenHost) -> None:
    started = asyncio.Event()

    async def blocked(task: TaskContext) -> None:
        async with task.tool("math/calculate"):
            started.set()
            await asyncio.Event().wait()

    host = await open_host(define(blocked))
    task_id = await start(host)
    await started.wait()
    (call,) = (await host.cancel(task_id, account="")).tool_calls
    assert call.finished.is_error


async def test_a_waiting_task_can_be_canceled(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> None:
        await task.require_input("?")

    host = await open_host(define(ask))
    waiting = await finish(host)
    snapshot = await host.cancel(waiting.task.id, account="")
    assert snapshot.task.status.state == State.TASK_STATE_CANCELED


async def test_an_ended_task_cannot_be_canceled(open_host: OpenHost) -> None:
    async def quiet(task: TaskContext) -> None:
        return None

    host = await open_host(define(quiet))
    ended = await finish(host)
    with pytest.raises(TaskNotCancelableError, match="completed"):
        await host.cancel(ended.task.id, account="")


async def test_another_account_cannot_cancel_or_even_see_a_task(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> None:
        await task.require_input("?")

    host = await open_host(define(ask))
    waiting = await finish(host, account="ours")
    with pytest.raises(TaskNotFoundError):
        await host.cancel(waiting.task.id, account="theirs")
    with pytest.raises(TaskNotFoundError):
        await host.snapshot(waiting.task.id, account="")


async def test_cancel_reaches_unfinished_children(open_host: OpenHost) -> None:
    canceled: list[tuple[str, str]] = []
    started = asyncio.Event()

    async def cancel_child(task_id: str, account: str) -> None:
        canceled.append((task_id, account))

    async def parent(task: TaskContext) -> None:
        for child in ("c-1", "c-2"):
            child_started = event_pb2.ChildStarted(task_id=child, agent="math")
            await get_turn_runtime(task).record(event_pb2.Event(child_started=child_started))
        ended = event_pb2.ChildFinished(
            task_id="c-1", agent="math", state=State.TASK_STATE_COMPLETED
        )
        await get_turn_runtime(task).record(event_pb2.Event(child_finished=ended))
        started.set()
        await asyncio.Event().wait()

    host = await open_host(define(parent), cancel_child=cancel_child)
    task_id = await start(host)
    await started.wait()
    await host.cancel(task_id, account="")
    assert canceled == [("c-2", "anonymous")]


async def test_racing_cancels_and_completions_have_one_outcome(open_host: OpenHost) -> None:
    async def brief(task: TaskContext) -> str:
        for _ in range(int(task.text)):
            await asyncio.sleep(0)
        return "done"

    host = await open_host(define(brief))
    outcomes = set()
    for turns in range(12):
        task_id = await start(host, str(turns))
        for _ in range(turns % 4):
            await asyncio.sleep(0)
        try:
            outcome = (await host.cancel(task_id, account="")).task.status.state
        except TaskNotCancelableError:
            outcome = State.TASK_STATE_COMPLETED
        ended = await host.wait_turn(task_id)
        assert ended.task.status.state == outcome
        outcomes.add(outcome)
    assert State.TASK_STATE_CANCELED in outcomes
