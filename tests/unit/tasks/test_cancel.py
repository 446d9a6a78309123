"""Cancel stops the agent's code, and a race with another end has one outcome."""

import asyncio

from harness.agents.inline_agents import (
    OpenHost,
    define,
    finish,
    start,
    status_texts,
    texts,
)
from trunkline.core.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2


async def test_cancel_stops_the_code_and_its_call_and_keeps_its_output(open_host: OpenHost) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def endless(task: TaskContext) -> None:
        await task.artifact().append("so far")
        async with task.tool("math/calculate"):
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
    assert snapshot.tool_calls[0].finished.is_error


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


async def test_a_waiting_task_can_be_canceled(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> None:
        await task.require_input("?")

    host = await open_host(define(ask))
    waiting = await finish(host)
    snapshot = await host.cancel(waiting.task.id, account="")
    assert snapshot.task.status.state == State.TASK_STATE_CANCELED


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
