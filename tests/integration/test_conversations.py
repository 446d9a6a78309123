"""Conversations over A2A: each question is its own task; the mesh restarts in between."""

import signal
from pathlib import Path
from typing import Any

import httpx2

from harness.a2a.bridged_mesh import Caller
from harness.mesh.processes import MeshProcess, ended, running_mesh

TIMEOUT_S = 300.0


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


async def test_a_conversation_survives_restarts(tmp_path: Path) -> None:
    paths = ("/agents/math", "/")
    contexts: dict[str, str] = {}
    waiting: dict[str, str] = {}
    async with running_mesh(tmp_path, servers=("math",)) as mesh:
        for path in paths:
            first = await send(mesh, path, "What's 2+2?")
            assert answer_of(first) == "4"
            contexts[path] = first["contextId"]
            waiting_task = await send(mesh, path, "who wrote Hamlet", contextId=contexts[path])
            assert waiting_task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            waiting[path] = waiting_task["id"]
        await stop(mesh, signal.SIGKILL)

    # A graceful stop without a second message: the first question after a start is slow.
    async with running_mesh(tmp_path) as mesh:
        await stop(mesh, signal.SIGTERM)

    async with running_mesh(tmp_path, servers=("math",)) as mesh:
        for path, context_id in contexts.items():
            second = await send(mesh, path, "What about 3+3?", contextId=context_id)
            assert answer_of(second) == "6"
            third = await send(mesh, path, "Add them together", contextId=context_id)
            assert answer_of(third) == "10"
            # Another conversation does not have these messages.
            other = await send(mesh, path, "Add them together")
            assert other["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        for path, task_id in waiting.items():
            answered = await send(mesh, path, "what is 20+1", taskId=task_id)
            assert answer_of(answered) == "21"
