"""Checks of our own client: it asks a scripted agent that answers with the format's payloads.

The draft's payloads without ids of messages, and its parts `file` and `fileUrl`, have the form of
A2A 1.0 here.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.a2a.protocol_variants import ProtocolVariant
from harness.agents.inline_agents import status_texts, texts
from harness.conformance.registry import Json, System, check
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.remote.scripted_agent import ScriptedAgent, error, result, scripted_agent
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.json_values import read_member
from trunkline.tasks.lifecycle import State
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2

_SETTINGS = RemoteSettings(url="", name="far")
_STREAMING = "SendStreamingMessage"


async def _send(
    agent: ScriptedAgent, **settings: Any
) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
    """Send a message to the agent as an agent of a mesh."""
    with TemporaryDirectory() as folder:
        async with (
            open_small_mesh(Path(folder)) as mesh,
            connect_remote_agent(replace(_SETTINGS, url=agent.url, **settings)) as remote,
        ):
            await mesh.join(remote.agent)
            return await mesh.client("far").send_message(
                agent="far",
                message=mesh.message("hello"),
                submission=message_service_pb2.Submission(),
                timeout_s=PATIENCE_S,
            )


async def _ask(agent: ScriptedAgent, **settings: Any) -> snapshot_pb2.TaskSnapshot:
    """Return the task of a message to the agent."""
    answer = await _send(agent, **settings)
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer


async def _answered(sent: Json, read: Json | None = None) -> snapshot_pb2.TaskSnapshot:
    """Return the task of an agent whose SendMessage and GetTask have these results."""
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result(sent))
        agent.on("GetTask", result(read or sent.get("task")))
        task = await _ask(agent)
        # The card declares neither streams nor webhooks.
        assert {call.method for call in agent.calls} <= {"card", "SendMessage", "GetTask"}
        return task


def _task(state: str, **fields: object) -> Json:
    status = {"state": f"TASK_STATE_{state}", "timestamp": "2025-05-25T20:05:00Z"}
    return {"id": "task-abc-123", "contextId": "ctx-001", "status": status, **fields}


def _artifact(name: str, part: Json) -> Json:
    return {"artifactId": name, "parts": [part]}


@check("CLIENT-PARSE-001", scope="client")
async def _a_client_reads_a_task(_system: System, _wire: ProtocolVariant) -> None:
    artifacts = [_artifact("art-1", {"text": "hello world"})]
    task = await _answered({"task": _task("COMPLETED", artifacts=artifacts)})
    assert task.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(task) == ["hello world"]


@check("CLIENT-PARSE-002", scope="client")
async def _a_client_reads_a_message(_system: System, _wire: ProtocolVariant) -> None:
    reply = {"messageId": "msg-001", "role": "ROLE_AGENT", "parts": [{"text": "I can help"}]}
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result({"message": reply}))
        answer = await _send(agent)
    assert isinstance(answer, message_pb2.Message)
    assert [part.text for part in answer.parts] == ["I can help"]


@check("CLIENT-PARSE-003", scope="client")
async def _a_client_reads_a_task_that_it_gets(_system: System, _wire: ProtocolVariant) -> None:
    artifacts = [
        _artifact("art-1", {"text": "result text"}),
        _artifact("art-2", {"data": {"key": "value"}}),
    ]
    history = [
        {"role": "ROLE_USER", "parts": [{"text": "original request"}]},
        {"role": "ROLE_AGENT", "parts": [{"text": "processing..."}]},
    ]
    completed = _task("COMPLETED", artifacts=artifacts, history=history)
    task = await _answered({"task": _task("WORKING")}, completed)
    assert task.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(task)[0] == "result text"
    assert read_member(task.task.artifacts[1].parts[0].data.struct_value, "key") == "value"


@check("CLIENT-PARSE-004", scope="client")
async def _a_client_reads_an_error(_system: System, _wire: ProtocolVariant) -> None:
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result({"task": _task("WORKING")}))
        agent.on("GetTask", error(-32001, "Task not found"))
        task = await _ask(agent)
    assert task.task.status.state == State.TASK_STATE_FAILED
    assert "not found" in status_texts(task).lower()


@check("CLIENT-PARSE-005", scope="client")
async def _a_client_reads_a_question(_system: System, _wire: ProtocolVariant) -> None:
    question = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Which details?"}]}
    waiting = _task("INPUT_REQUIRED")
    waiting["status"]["message"] = question
    task = await _answered({"task": waiting})
    assert task.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert status_texts(task) == "Which details?"


@check("CLIENT-PARSE-006", scope="client")
async def _a_client_reads_every_kind_of_part(_system: System, _wire: ProtocolVariant) -> None:
    file = {"filename": "report.pdf", "mediaType": "application/pdf"}
    artifacts = [
        _artifact("art-text", {"text": "Plain text result"}),
        _artifact("art-data", {"data": {"temperature": 72.5, "unit": "fahrenheit"}}),
        _artifact("art-file", {"raw": "JVBERi0xLjQ=", **file}),
        _artifact("art-url", {"url": "https://example.com/report.pdf", **file}),
    ]
    task = await _answered({"task": _task("COMPLETED", artifacts=artifacts)})
    assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
    kinds = [artifact.parts[0].WhichOneof("content") for artifact in task.task.artifacts]
    assert kinds == ["text", "data", "raw", "url"]
    assert task.task.artifacts[2].parts[0].filename == "report.pdf"


@check("CLIENT-AUTH-001", scope="client")
async def _a_client_reads_only_the_public_card(_system: System, _wire: ProtocolVariant) -> None:
    """Our client never fetches an extended card, so none has to replace the public one.

    It sends its credentials with its request for the card. A server that shows more to
    authenticated callers can show it there.
    """
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result({"task": _task("COMPLETED")}))
        agent.card["capabilities"] |= {"extendedAgentCard": True}
        task = await _ask(agent, headers={"x-api-key": "the-key"})
        assert task.task.status.state == State.TASK_STATE_COMPLETED
        assert not agent.find_requests("GetExtendedAgentCard")
        assert {call.headers["x-api-key"] for call in agent.find_requests("card")} == {"the-key"}


@check("CLIENT-CAP-001", scope="client")
async def _a_client_uses_only_declared_capabilities(
    _system: System, _wire: ProtocolVariant
) -> None:
    for streaming in (False, True):
        async with scripted_agent(streaming=streaming) as agent:
            agent.on("SendMessage", result({"task": _task("COMPLETED")}))
            agent.on(_STREAMING, result({"task": _task("COMPLETED")}))
            assert (await _ask(agent)).task.status.state == State.TASK_STATE_COMPLETED
            assert bool(agent.find_requests(_STREAMING)) is streaming
            assert bool(agent.find_requests("SendMessage")) is not streaming
            assert not [call for call in agent.calls if "PushNotification" in call.method]
