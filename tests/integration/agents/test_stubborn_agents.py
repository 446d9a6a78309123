"""A process stops while its agents ignore their cancellation."""

from pathlib import Path
from typing import Any

import httpx2

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


async def test_agents_that_ignore_cancellation_do_not_delay_their_process(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(AGENTS)
    names = ("deaf", "threaded")
    flags = [word for name in names for word in ("--agent", f"stubborn:{name}")]
    submitted = {}
    async with running_mesh(tmp_path, *flags, environment=QUICK) as mesh:
        for name in names:
            message = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": "stay"}]}
            submitted[name] = await call(
                f"{mesh.http_url}/agents/{name}",
                "SendMessage",
                {"message": message, "configuration": {"returnImmediately": True}},
            )
        mesh.process.terminate()
        await ended(mesh.process)
        assert mesh.process.returncode == 0

    async with running_mesh(tmp_path, *flags, environment=QUICK) as mesh:
        for name in names:
            task = await call(
                f"{mesh.http_url}/agents/{name}", "GetTask", {"id": submitted[name]["task"]["id"]}
            )
            assert task["status"]["state"] == "TASK_STATE_FAILED"
            assert "shut down" in task["status"]["message"]["parts"][0]["text"]
