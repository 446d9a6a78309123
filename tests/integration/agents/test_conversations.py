"""Conversations over A2A with a model: each question is its own task; the mesh restarts between."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from harness.a2a.bridged_mesh import Caller
from harness.mesh.processes import MeshProcess, ended, running_mesh
from harness.remote.model_server import ModelServer, Reply, call, model_server, say

TIMEOUT_S = 300.0
SETTINGS = """
model = "openai:any"
[agent.math]
check = false
"""
PLAN = {"steps": [{"agent": "math", "text": "work it out"}]}


async def send(mesh: MeshProcess, path: str, text: str, **message: Any) -> Any:
    """Send a message and return its task."""
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
        return await Caller(client, mesh.http_url + path).send(text, **message)


async def stop(mesh: MeshProcess, stop_signal: signal.Signals) -> None:
    mesh.process.send_signal(stop_signal)
    await ended(mesh.process)


def answer_of(task: Any) -> str:
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    names = {"answer", "partial_result"}
    (answer,) = [artifact for artifact in task["artifacts"] if artifact["name"] in names]
    return "".join(part["text"] for part in answer["parts"])


def script(provider: ModelServer, path: str, reply: Reply) -> None:
    """Have the agent at a path answer; a supervisor has a plan made before."""
    plan = [] if path == "/agents/math" else [call("make_plan", **PLAN)]
    provider.script(*plan, reply)


def said(provider: ModelServer) -> Sequence[str]:
    """Return the texts that the model got in the first request since it was scripted."""
    return [str(message["content"]) for message in provider.requests[0].messages]


async def test_a_conversation_survives_restarts(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text(SETTINGS)
    paths = ("/agents/math", "/")
    contexts: dict[str, str] = {}
    waiting: dict[str, str] = {}
    with model_server() as provider:
        environment = provider.environment
        async with running_mesh(tmp_path, servers=("math",), environment=environment) as mesh:
            for path in paths:
                script(provider, path, say("It is 4."))
                first = await send(mesh, path, "What's 2+2?")
                assert answer_of(first) == "It is 4."
                contexts[path] = first["contextId"]
                provider.script(call("ask_user", question="Which play?"))
                asked = await send(mesh, path, "who wrote it", contextId=contexts[path])
                assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                waiting[path] = asked["id"]
            await stop(mesh, signal.SIGKILL)

        # A graceful stop without a second message: the first question after a start is slow.
        async with running_mesh(tmp_path, environment=environment) as mesh:
            await stop(mesh, signal.SIGTERM)

        async with running_mesh(tmp_path, servers=("math",), environment=environment) as mesh:
            for path, context_id in contexts.items():
                script(provider, path, say("It is 12."))
                second = await send(mesh, path, "And times 3?", contextId=context_id)
                assert answer_of(second) == "It is 12."
                texts = said(provider)
                assert texts.index("What's 2+2?") < texts.index("It is 4.")
                assert texts[-1] == "And times 3?"
                # Another conversation does not have these messages.
                script(provider, path, say("Of what?"))
                await send(mesh, path, "And times 3?")
                assert "What's 2+2?" not in said(provider)
            for path, task_id in waiting.items():
                script(provider, path, say("Shakespeare."))
                answered = await send(mesh, path, "Hamlet", taskId=task_id)
                assert answer_of(answered) == "Shakespeare."
                texts = said(provider)
                assert texts.index("who wrote it") < texts.index("Which play?")
