"""Tasks that are paused between their steps."""

import asyncio
from dataclasses import replace

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, finish, message, texts
from trunkline.errors import TaskEndedError, TaskNotFoundError, UnsupportedOperationError
from trunkline.json_values import read_member
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import message_pb2


async def begin(host: TaskHost) -> str:
    accepted = await host.submit("tested", message("go"), NOTHING)
    assert not isinstance(accepted, message_pb2.Message)
    return accepted.task_id


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
    task_id = await begin(host)
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


async def test_only_tasks_of_the_account_that_work_in_steps_are_paused(
    open_host: OpenHost,
) -> None:
    proceed = asyncio.Event()

    async def plain(task: TaskContext) -> str:
        await proceed.wait()
        return "ok"

    host = await open_host(define(plain))
    task_id = await begin(host)
    with pytest.raises(UnsupportedOperationError, match="only workflows"):
        await host.pause(task_id, account="")
    with pytest.raises(TaskNotFoundError):
        await host.pause(task_id, account="somebody-else")
    proceed.set()
    await host.wait_turn(task_id)
