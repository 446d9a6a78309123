"""A question that is interrupted cancels its task, even before it knows the task's id."""

import asyncio

import pytest

from harness.remote.scripted_agent import Call, Writer, scripted_agent, stream, task
from trunkline.cli.ask import Question, ask

QUESTION = Question("bake a cake", None, task_id="", context_id="", timeout_s=None)


async def test_the_task_that_the_first_response_names_is_canceled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    may_answer, may_end = asyncio.Event(), asyncio.Event()

    async def answer_late(call: Call, writer: Writer) -> None:
        await may_answer.wait()
        await stream(task(), then=may_end)(call, writer)

    async with scripted_agent() as agent:
        agent.on("SendStreamingMessage", answer_late)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(QUESTION, url=agent.url, as_json=False))
            await agent.until("SendStreamingMessage")
            asking.cancel()
            # One pass of the loop: the interruption arrives before the response.
            await asyncio.sleep(0)
            may_answer.set()
        may_end.set()
        assert [call.params["id"] for call in agent.find_requests("CancelTask")] == ["t-1"]
    assert capsys.readouterr().err == "canceled task t-1\n"
