"""A question that is interrupted cancels its task; one whose mesh is gone names it."""

import asyncio

import pytest

from harness.remote.scripted_agent import Call, Writer, raw, scripted_agent, stream, task
from trunkline.cli.ask import Question, ask
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.client import a2a_client

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


async def test_a_task_whose_mesh_is_gone_can_be_followed_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(a2a_client, "RESUME_DELAYS_S", (0.0, 0.0))
    async with scripted_agent() as agent:
        agent.on("SendStreamingMessage", stream(task()))
        agent.on("SubscribeToTask", raw())
        with pytest.raises(PeerUnavailableError, match="`trunkline watch t-1` follows the task"):
            await ask(QUESTION, url=agent.url, as_json=False)
    assert capsys.readouterr().out == ""
