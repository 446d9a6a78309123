"""A process stops while its agents ignore their cancellation."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.mesh.processes import ended, running_mesh

AGENTS = """
import asyncio
import threading
from trunkline import agent


@agent(name="deaf", description="Ignores that it is canceled.", tags=["deaf"])
async def deaf(task):
    await task.working()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@agent(name="threaded", description="Hangs in a thread.", tags=["thread"])
async def threaded(task):
    await task.working()
    await asyncio.to_thread(threading.Event().wait)
"""

QUICK = {"TRUNKLINE_DRAIN_GRACE_S": "0.1", "TRUNKLINE_CANCEL_GRACE_S": "0.1"}


async def call(url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
        answer = await http.post(url, json=body, headers={"A2A-Version": "1.0"})
    result: dict[str, Any] = answer.json()["result"]
    return result


@pytest.mark.parametrize("name", ["deaf", "threaded"])
async def test_an_agent_that_ignores_cancellation_does_not_delay_its_process(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "stubborn.py").write_text(AGENTS)
    flags = ("--agent", f"stubborn:{name}")
    async with running_mesh(tmp_path, *flags, environment=QUICK) as mesh:
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "stay"}]}
        submitted = await call(
            f"{mesh.http_url}/agents/{name}",
            "SendMessage",
            {"message": message, "configuration": {"returnImmediately": True}},
        )
        mesh.process.terminate()
        await ended(mesh.process)
        assert mesh.process.returncode == 0

    async with running_mesh(tmp_path, *flags, environment=QUICK) as mesh:
        task = await call(
            f"{mesh.http_url}/agents/{name}", "GetTask", {"id": submitted["task"]["id"]}
        )
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "shut down" in task["status"]["message"]["parts"][0]["text"]
