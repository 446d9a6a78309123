"""The agent argocd on a whole mesh, against a stand-in for Argo CD, over each interface."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import Caller
from harness.a2a.curl import curl
from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.argocd_server import TOKEN, ArgoCDServer, argocd_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSION = "Argo CD v3.2.1+8c4ab63 (built 2026-01-30T17:48:12Z, "


@pytest.fixture(scope="module")
def argocd() -> Iterator[ArgoCDServer]:
    with argocd_server() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    argocd: ArgoCDServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MeshProcess]:
    folder = tmp_path_factory.mktemp("mesh")
    settings = f'[argocd]\nurl = "{argocd.url}"\ntoken_env = "OUR_TOKEN"\n'
    (folder / "trunkline.toml").write_text(settings)
    async with running_mesh(folder, environment={"OUR_TOKEN": TOKEN}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(mesh: MeshProcess) -> AsyncIterator[Caller]:
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        yield Caller(client, f"{mesh.http_url}/agents/argocd")


def status_text(task: dict[str, Any]) -> str:
    parts = task["status"].get("message", {}).get("parts", [])
    return "".join(part.get("text", "") for part in parts)


async def test_show_argocd_version_by_the_command_line_and_the_supervisor(
    mesh: MeshProcess,
) -> None:
    result = await run_command("ask", "--url", mesh.http_url, "show argocd version", "--json")
    assert (result.json["state"], result.json["agent"]) == ("completed", "argocd")
    assert result.json["answer"].startswith(VERSION)
    result = await run_command(
        "ask", "--url", mesh.http_url, "--agent", "argocd", "show argocd version"
    )
    assert (result.exit, result.err) == (0, "")
    assert result.out.startswith(VERSION)


async def test_the_documented_curl_command_works_at_its_address_and_at_the_root(
    mesh: MeshProcess,
) -> None:
    for url in (f"{mesh.http_url}/", f"{mesh.http_url}/agents/argocd"):
        events = await curl(url, "show argocd version")
        assert VERSION in str(events)
        assert events[-1]["result"]["status"]["state"] == "completed"
        assert events[-1]["result"]["final"] is True
        assert {event["id"] for event in events} == {"test-1"}
    # An unsupported request gets an answer, too: the list of possible ones.
    events = await curl(f"{mesh.http_url}/agents/argocd")
    assert events[-1]["result"]["status"]["state"] == "input-required"
    assert "show argocd version" in str(events[-1])


async def test_a_sync_waits_for_approval_and_is_then_made_once(
    agent: Caller, argocd: ArgoCDServer
) -> None:
    argocd.synced.clear()
    task = await agent.send("sync app shop")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert "argocd/sync_application" in status_text(task)
    assert "shop" in status_text(task)
    assert argocd.synced == []
    task = await agent.send("approve", taskId=task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    assert "The sync of shop has begun." in str(task["artifacts"])
    assert [sync["name"] for sync in argocd.synced] == ["shop"]


async def test_a_rejected_sync_is_not_made(
    mesh: MeshProcess, agent: Caller, argocd: ArgoCDServer
) -> None:
    before = len(argocd.synced)
    result = await run_command("ask", "--url", mesh.http_url, "sync app shop", "--json")
    assert result.json["state"] == "input-required"
    task = await Caller(agent.client, mesh.http_url).send(
        "reject not today", taskId=result.json["task_id"]
    )
    assert task["status"]["state"] in {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}, task
    assert len(argocd.synced) == before


async def test_without_an_address_there_is_no_such_agent(tmp_path: Path) -> None:
    async with (
        running_mesh(tmp_path) as mesh,
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
    ):
        for name, status in (("argocd", 404), ("math", 200)):
            card = await client.get(f"{mesh.http_url}/agents/{name}/.well-known/agent-card.json")
            assert card.status_code == status
