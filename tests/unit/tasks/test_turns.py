"""Turns: their events, their end and their errors."""

import asyncio

import pytest

from harness.agents.inline_agents import (
    NOTHING,
    OpenHost,
    define,
    finish,
    message,
    start,
    status_texts,
    texts,
)
from trunkline.core.json_values import read_member
from trunkline.errors import (
    AgentNotFoundError,
    ContentTypeNotSupportedError,
    InvalidAgentResponseError,
    InvalidArgumentError,
    TaskEndedError,
    UnsupportedOperationError,
)
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.v1 import (
    message_pb2,
    part_pb2,
)


async def test_the_output_of_a_quick_agent_is_one_batch(open_host: OpenHost) -> None:
    async def quick(task: TaskContext) -> None:
        answer = task.artifact()
        for word in ("one ", "two ", "three"):
            await answer.append(word)
        await answer.close()

    host = await open_host(define(quick))
    snapshot = await finish(host)
    watch = await host.watch(snapshot.task.id, account="", after=0, until_head=True)
    batches = [batch async for ready in watch for batch in ready]
    # One batch for the creation, and one for the rest.
    assert len(batches) == 2


async def test_a_direct_reply_without_the_declaration_fails_the_task(open_host: OpenHost) -> None:
    async def reply(task: TaskContext) -> message_pb2.Message:
        return message_pb2.Message(parts=[part_pb2.Part(text="just so")])

    snapshot = await finish(await open_host(define(reply)))
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    assert "direct_replies" in status_texts(snapshot)


async def test_an_exception_fails_the_task_and_is_not_shown(
    open_host: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(task: TaskContext) -> None:
        raise ValueError("the password is hunter2")

    snapshot = await finish(await open_host(define(broken)))
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    assert "hunter2" not in status_texts(snapshot)
    assert "log" in status_texts(snapshot)
    assert "agent.failed" in caplog.messages


async def test_a_timeout_inside_the_agent_is_not_the_deadline(open_host: OpenHost) -> None:
    async def impatient(task: TaskContext) -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    snapshot = await finish(await open_host(define(impatient)))
    assert "deadline" not in status_texts(snapshot)
    assert snapshot.task.status.state == State.TASK_STATE_FAILED


async def test_a_closed_artifact_takes_nothing_more(open_host: OpenHost) -> None:
    async def careless(task: TaskContext) -> None:
        artifact = task.artifact()
        await artifact.append("all", last=True)
        await artifact.close()
        await artifact.append("more")

    snapshot = await finish(await open_host(define(careless)))
    assert texts(snapshot) == ["all"]
    assert "is closed" in status_texts(snapshot)


async def test_a_failed_tool_call_is_finished(open_host: OpenHost) -> None:
    async def uses_tools(task: TaskContext) -> None:
        async with task.tool("math/calculate", {"expression": "1+2"}) as call:
            call.summary = "3"
        async with task.tool("math/solve"):
            raise InvalidArgumentError("equation", "is missing")

    snapshot = await finish(await open_host(define(uses_tools)))
    ends = [(info.finished.summary, info.finished.is_error) for info in snapshot.tool_calls]
    assert ends[0] == ("3", False)
    assert ends[1][1] is True
    assert read_member(snapshot.tool_calls[0].started.arguments, "expression") == "1+2"


async def test_a_new_revision_of_a_plan_has_nothing_of_the_earlier_one(open_host: OpenHost) -> None:
    async def planner(task: TaskContext) -> None:
        plan = task.plan()
        await plan.append("old")
        plan.start_revision()
        # The earlier text has not been written yet.
        await plan.append("new")

    snapshot = await finish(await open_host(define(planner)))
    (plan,) = snapshot.plans
    assert (plan.revision, plan.text) == (2, "new")


async def test_an_unacceptable_message_is_refused(open_host: OpenHost) -> None:
    async def quiet(task: TaskContext) -> None:
        return None

    host = await open_host(define(quiet))
    with pytest.raises(AgentNotFoundError, match="unknown"):
        await host.submit("unknown", message(), NOTHING)
    empty = message_pb2.Message(message_id="m", role=message_pb2.ROLE_USER)
    with pytest.raises(InvalidArgumentError, match="parts"):
        await host.submit("tested", empty, NOTHING)
    picture = message()
    picture.parts.add(raw=b"1", media_type="image/png")
    with pytest.raises(ContentTypeNotSupportedError, match="text/plain"):
        await host.submit("tested", picture, NOTHING)


async def test_of_concurrent_answers_one_starts_the_turn(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> str | None:
        if task.turn == 1:
            await task.require_input("?")
            return None
        return task.text

    host = await open_host(define(ask))
    waiting = await finish(host)
    refused = 0
    async with asyncio.TaskGroup() as group:

        async def answer(text: str) -> None:
            nonlocal refused
            try:
                await host.submit("tested", message(text, task_id=waiting.task.id), NOTHING)
            except (UnsupportedOperationError, TaskEndedError):
                refused += 1

        for text in ("a", "b", "c"):
            group.create_task(answer(text))
    assert refused == 2
    final = await host.wait_turn(waiting.task.id)
    assert final.turn == 2


async def test_an_agent_with_direct_replies_makes_a_task_as_soon_as_it_emits(
    open_host: OpenHost,
) -> None:
    released = asyncio.Event()

    async def slow(task: TaskContext) -> None:
        await task.working()
        await released.wait()

    host = await open_host(define(slow, direct_replies=True))
    task_id = await start(host)
    released.set()
    assert (await host.wait_turn(task_id)).task.status.state == State.TASK_STATE_COMPLETED


async def test_nothing_can_be_emitted_after_the_end(open_host: OpenHost) -> None:
    refused: list[str] = []
    finished = asyncio.Event()

    async def talkative(task: TaskContext) -> None:
        artifact = task.artifact()
        await artifact.append("in time")
        await task.complete()
        for late in (artifact.append("late"), task.working(), task.fail("late")):
            with pytest.raises(InvalidAgentResponseError) as caught:
                await late
            refused.append(str(caught.value))
        finished.set()

    snapshot = await finish(await open_host(define(talkative)))
    await finished.wait()
    assert texts(snapshot) == ["in time"]
    assert len(refused) == 3
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED
