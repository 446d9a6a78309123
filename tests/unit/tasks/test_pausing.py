"""Tasks that are paused between their steps."""

import asyncio
from dataclasses import replace

import pytest

from harness.agents.inline_agents import OpenHost, define, finish, start, texts
from trunkline.core.json_values import read_member
from trunkline.errors import TaskEndedError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime


class Steps:
    """An agent that takes three steps, each when it is let."""

    def __init__(self) -> None:
        self.allowed = asyncio.Semaphore(0)
        self.written = asyncio.Semaphore(0)
        self.agent = replace(define(self.run), is_pausable=True)

    async def run(self, task: TaskContext) -> str:
        artifact = task.artifact("log")
        for number in range(3):
            await self.allowed.acquire()
            await get_turn_runtime(task).pause.wait()
            await artifact.append(f"{number} ")
            self.written.release()
        return "done"


async def test_no_step_begins_while_a_task_is_paused(open_host: OpenHost) -> None:
    steps = Steps()
    host = await open_host(steps.agent)
    task_id = await start(host)
    steps.allowed.release()
    await steps.written.acquire()
    paused = await host.pause(task_id, account="")
    assert read_member(paused.task.metadata, "trunkline/paused") is True
    assert (await host.pause(task_id, account="")).sequence == paused.sequence
    steps.allowed.release()
    steps.allowed.release()
    still = await host.snapshot(task_id, account="")
    assert texts(still) == ["0 "]
    await host.resume(task_id, account="")
    ended = await host.wait_turn(task_id)
    assert texts(ended)[0] == "0 1 2 "
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    with pytest.raises(TaskEndedError):
        await host.pause(task_id, account="")


async def test_a_paused_question_is_not_lost(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> str | None:
        if task.turn == 1:
            await task.require_input("which city?")
            return None
        await get_turn_runtime(task).pause.wait()
        return task.text

    host = await open_host(replace(define(ask), is_pausable=True))
    task_id = (await finish(host, "weather")).task.id
    paused = await host.pause(task_id, account="")
    assert paused.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert paused.task.status.message.parts[0].text == "which city?"
    resumed = await host.resume(task_id, account="")
    assert read_member(resumed.task.metadata, "trunkline/paused") is False
