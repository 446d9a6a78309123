"""Journals with waiting tasks move to a host that runs their agent, once one joins."""

import asyncio
from pathlib import Path

import pytest

from harness.mesh.host_processes import failure_reason, has_ended, hosts, is_waiting, text_of
from trunkline.errors import PeerUnavailableError
from trunkline.v1 import task_pb2


async def test_waiting_tasks_move_to_a_host_of_their_agent_when_one_joins(tmp_path: Path) -> None:
    async with hosts(tmp_path, "echo", "math") as (services, caller):
        waiting = await caller.begin_question()
        running = await caller.begin_streaming()
        await services.kill("echo")
        # The host without the agent takes over both journals: it ends one task, and can only hold
        # the other.
        ended = await caller.until(running, has_ended)
        assert ended.task.status.state == task_pb2.TASK_STATE_FAILED
        await caller.until(waiting, is_waiting)
        with pytest.raises(PeerUnavailableError, match="try again"):
            await caller.answer_once(waiting, "too early")
        async with asyncio.TaskGroup() as group:
            # The caller retries for long, and the answer is committed once.
            group.create_task(caller.answer(waiting, "Ada"))
            await services.restart("echo")
        await caller.wait_until_moved("echo", waiting)
        answered = await caller.until(waiting, has_ended)
        assert answered.task.status.state == task_pb2.TASK_STATE_COMPLETED, failure_reason(answered)
        assert text_of(answered) == "answer: Ada"
        assert await caller.until(running, has_ended) == ended
