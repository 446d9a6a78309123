"""A question that is interrupted cancels its task; one whose mesh or host is gone names it."""

import asyncio
import json

import pytest

from harness.remote.scripted_agent import Call, Writer, raw, scripted_agent, stream, task
from trunkline.cli import agent_client
from trunkline.cli.commands.ask import ask
from trunkline.errors import PeerUnavailableError

QUESTION = "bake a cake"


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
            asking = group.create_task(ask(QUESTION, url=agent.url))
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
    monkeypatch.setattr(agent_client, "PATIENCE_S", 0.3)
    async with scripted_agent() as agent:
        agent.on("SendStreamingMessage", stream(task()))
        agent.on("SubscribeToTask", raw())
        with pytest.raises(PeerUnavailableError, match="`trunkline watch t-1` follows the task"):
            await ask(QUESTION, url=agent.url)
    assert capsys.readouterr().out == ""


async def test_a_task_whose_host_was_killed_ends_the_question_with_the_reason() -> None:
    text = "the task's host has left the mesh"
    metadata = {"peer": "the agent's host", "problem": text}
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "metadata": metadata}
    error = {"code": -32000, "message": text, "data": [info | {"reason": "UNAVAILABLE"}]}
    body = {"jsonrpc": "2.0", "id": 1, "error": error}
    async with scripted_agent() as agent:
        broken = stream(task(), f"event: error\ndata: {json.dumps(body)}", ids=True)
        agent.on("SendStreamingMessage", broken)
        agent.on("SubscribeToTask", broken)
        with pytest.raises(PeerUnavailableError, match=r"left the mesh.*`trunkline watch t-1`"):
            await ask(QUESTION, url=agent.url)
        # Its mesh waited for the host; a resumed stream would wait as long again.
        assert not agent.find_requests("SubscribeToTask")
