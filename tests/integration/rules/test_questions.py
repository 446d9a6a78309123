"""Requests to a mesh of all bundled agents that has no model, over A2A."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from harness.mesh.command_line import run_in_process
from harness.mesh.processes import running_mesh
from harness.remote.argocd_server import TOKEN, argocd_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

VECTORS = Path(__file__).parents[2] / "vectors"
TABLE = json.loads((VECTORS / "requests.json").read_text("utf-8"))
AT_ONCE = 4
TIMEOUT_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A mesh with all bundled agents, and the handbook as its document."""
    folder = tmp_path_factory.mktemp("mesh")
    words = ("docs", "add", str(VECTORS / "handbook.md"), "--data", str(folder / "data"))
    added = run_in_process(*words)
    assert added.exit == 0, added.err
    with argocd_server() as argocd:
        environment = {
            "TRUNKLINE_ARGOCD_URL": argocd.url,
            "ARGOCD_AUTH_TOKEN": TOKEN,
            "TRUNKLINE_RESEARCH_ARXIV_URL": "",
            "TAVILY_API_KEY": "",
        }
        async with running_mesh(folder, servers=None, environment=environment) as mesh:
            yield mesh.http_url


async def ask(client: httpx.AsyncClient, text: str) -> Mapping[str, Any]:
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    response = await client.post("/", json=request, headers={"A2A-Version": "1.0"})
    task: Mapping[str, Any] = response.json()["result"]["task"]
    return task


async def ask_all(url: str, kind: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Ask the requests of the table, a few at a time; return each with its task."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask_limited(client: httpx.AsyncClient, text: str) -> Mapping[str, Any]:
        async with limit:
            return await ask(client, text)

    cases = TABLE[kind]
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask_limited(client, case["question"])) for case in cases]
        return list(zip(cases, (task.result() for task in asked), strict=True))


def read_texts(task: Mapping[str, Any]) -> str:
    artifacts = task.get("artifacts", [])
    parts = [part for artifact in artifacts for part in artifact["parts"]]
    parts += task["status"].get("message", {}).get("parts", [])
    return "\n".join(part.get("text", "") for part in parts)


async def test_a_request_in_the_words_of_the_docs_is_answered(mesh_url: str) -> None:
    wrong = []
    for case, task in await ask_all(mesh_url, "cases"):
        route = task.get("metadata", {}).get("trunkline/route", {})
        agents = [step.get("agent") for step in route.get("steps") or [route]]
        answer = read_texts(task)
        is_complete = task["status"]["state"] == "TASK_STATE_COMPLETED"
        has_all = all(text in answer for text in case["answer"])
        if not (is_complete and agents == case["agents"] and has_all):
            wrong.append((case["question"], agents, answer))
    assert wrong == []


async def test_any_other_request_is_told_what_works_here_and_how_to_set_a_model(
    mesh_url: str,
) -> None:
    wrong = []
    for case, task in await ask_all(mesh_url, "asked_back"):
        answer = read_texts(task)
        is_asked = task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        if not (is_asked and all(text in answer for text in case["answer"])):
            wrong.append((case["question"], task["status"]["state"], answer))
    assert wrong == []
