"""An agent from outside the project, run in both ways, called as any A2A client calls it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.mesh.processes import read_line, running_mesh, running_process
from harness.mesh.small_mesh import PATIENCE_S

AGENT = """
import asyncio
from trunkline import Message, Part, agent, run, write_json

@agent(
    name="decider",
    description="Decides by the id of the message.",
    tags=["decide"],
    direct_replies=True,
    input_modes=["text/plain", "application/json"],
)
async def decider(task):
    wish = task.message.message_id.partition("/")[0]
    if wish == "direct":
        return Message(parts=[Part(text="directly")])
    if wish == "reject":
        await task.reject("not for me")
    elif wish == "ask-twice":
        if task.turn < 3:
            await task.require_input(f"question {task.turn}")
        else:
            asked = [part.text for message in task.history for part in message.parts]
            await task.complete(" | ".join(asked))
    elif wish == "parts":
        artifact = task.artifact("all kinds")
        await artifact.append("text")
        raw = Part(raw=b"\\x00\\x01", media_type="application/octet-stream", filename="a.bin")
        await artifact.append(raw)
        await artifact.append(Part(url="https://example.com/a.png", media_type="image/png"))
        data = Part(media_type="application/json")
        write_json(data.data, {"crates": 7})
        await artifact.append(data, last=True)
    elif wish == "chunks":
        artifact = task.artifact("chunks")
        for number in range(3):
            await artifact.append(f"{number}", last=number == 2)
    elif wish == "at-once":
        await task.complete("at once")
    else:
        return f"unknown wish {wish!r} of {task.caller!r}"

if __name__ == "__main__":
    run(decider)
"""


@asynccontextmanager
async def run_inside(folder: Path) -> AsyncIterator[str]:
    """Run the agent in the mesh's process."""
    async with running_mesh(folder, "--agent", "decider_agent:decider") as mesh:
        yield mesh.http_url


@asynccontextmanager
async def run_outside(folder: Path) -> AsyncIterator[str]:
    """Run the agent in a process that joins a running mesh."""
    command = (sys.executable, str(folder / "decider_agent.py"))
    async with (
        running_mesh(folder) as mesh,
        running_process(*command, "--mesh", mesh.mesh_address, cwd=folder) as agent,
    ):
        ready = await read_line(agent, "ready ")
        assert ready["agent"] == "decider"
        yield mesh.http_url


class Client:
    """JSON-RPC over HTTP without an SDK."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self._url = f"{url}/agents/decider"
        self._http = http

    async def send(self, message_id: str, **fields: str) -> dict[str, Any]:
        message = {
            "messageId": message_id,
            "role": "ROLE_USER",
            "parts": [{"text": message_id}],
            **fields,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        response = await self._http.post(self._url, json=body, headers={"A2A-Version": "1.0"})
        result: dict[str, Any] = response.json()["result"]
        return result

    async def card(self) -> dict[str, Any]:
        """Poll for its card: the bridge learns of the agent a moment after the registry."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._http.get(f"{self._url}/.well-known/agent-card.json")
                if answer.status_code != 404:
                    card: dict[str, Any] = answer.json()
                    return card
                await asyncio.sleep(0.05)


@pytest.fixture(
    params=[run_inside, run_outside], ids=["in the mesh's process", "in its own process"]
)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "decider_agent.py").write_text(AGENT)
    async with (
        request.param(tmp_path) as url,
        httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http,
    ):
        client = Client(url, http)
        await client.card()
        yield client


async def test_an_outside_agent_can_use_the_whole_authoring_api(client: Client) -> None:
    card = await client.card()
    assert card["name"] == "decider"
    assert card["supportedInterfaces"][0]["url"].endswith("/agents/decider")

    assert (await client.send("direct"))["message"]["parts"] == [{"text": "directly"}]

    rejected = (await client.send("reject"))["task"]
    assert rejected["status"]["state"] == "TASK_STATE_REJECTED"
    assert rejected["status"]["message"]["parts"] == [{"text": "not for me"}]

    at_once = (await client.send("at-once"))["task"]
    assert at_once["status"]["state"] == "TASK_STATE_COMPLETED"

    (chunks,) = (await client.send("chunks"))["task"]["artifacts"]
    assert (chunks["name"], chunks["parts"]) == ("chunks", [{"text": "012"}])

    (kinds,) = (await client.send("parts"))["task"]["artifacts"]
    assert kinds["parts"] == [
        {"text": "text"},
        {"raw": "AAE=", "mediaType": "application/octet-stream", "filename": "a.bin"},
        {"url": "https://example.com/a.png", "mediaType": "image/png"},
        {"data": {"crates": 7}, "mediaType": "application/json"},
    ]

    task = (await client.send("ask-twice/1"))["task"]
    for turn in (1, 2):
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert task["status"]["message"]["parts"] == [{"text": f"question {turn}"}]
        task = (await client.send(f"ask-twice/{turn + 1}", taskId=task["id"]))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["status"]["message"]["parts"] == [
        {"text": "ask-twice/1 | question 1 | ask-twice/2 | question 2 | ask-twice/3"}
    ]
