"""Cancel stops the agent's code, and a race with another end has one outcome."""

import asyncio

from harness.agents.inline_agents import (
    OpenHost,
    define,
    start,
    status_texts,
    texts,
)
from trunkline.core.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State


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
