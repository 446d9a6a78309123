"""Agents built with the reference SDK, of A2A v1.0 and v0.3: on a mesh, and asked by a client."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.sdk_processes import PYTHON_V0_3, make_environment
from harness.agents.inline_agents import status_texts, texts
from harness.mesh.processes import read_line, running_process
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.tasks.lifecycle import State

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[2]
SERVERS = {
    "1.0": (sys.executable, "partners.server_v1_0"),
    "0.3": (PYTHON_V0_3, "partners.server_v0_3"),
}
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SERVERS)
async def partner(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    make_environment()
    python, module = SERVERS[request.param]
    environment = {"PYTHONPATH": str(TESTS)}
    async with running_process(python, "-m", module, cwd=TESTS, environment=environment) as process:
        yield (await read_line(process, "ready "))["url"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BINDINGS)
async def mesh(
    partner: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SmallMesh]:
    """A mesh with the partner on it, under the name `far`."""
    settings = RemoteSettings(
        url=partner, name="far", bindings=(request.param,), hosts=("127.0.0.1",)
    )
    folder = tmp_path_factory.mktemp("mesh")
    async with open_small_mesh(folder) as mesh, connect_remote_agent(settings) as remote:
        await mesh.join(remote.agent)
        yield mesh


async def test_its_answer_streams_into_our_task(mesh: SmallMesh) -> None:
    task = await mesh.ask("count 100", agent="far")
    assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
    assert texts(task) == ["".join(f"{n} " for n in range(1, 101))]
    assert task.task.artifacts[0].name == "count"


async def test_its_question_is_answered_in_the_same_task(mesh: SmallMesh) -> None:
    waiting = await mesh.ask("ask which one?", agent="far")
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert status_texts(waiting) == "which one?"
    completed = await mesh.ask("this one", agent="far", task_id=waiting.task.id)
    assert completed.task.status.state == State.TASK_STATE_COMPLETED, status_texts(completed)
    assert texts(completed) == ["answer: this one"]


async def test_it_asks_for_credentials_and_continues(mesh: SmallMesh) -> None:
    waiting = await mesh.ask("login please", agent="far")
    assert waiting.task.status.state == State.TASK_STATE_AUTH_REQUIRED
    assert status_texts(waiting) == "please"
    completed = await mesh.ask("done", agent="far", task_id=waiting.task.id)
    assert texts(completed) == ["answer: done"], status_texts(completed)


async def test_our_cancel_cancels_its_task(mesh: SmallMesh) -> None:
    task_id = await mesh.begin("wait", agent="far")
    await mesh.until(task_id, lambda task: status_texts(task) == "waiting")
    canceled = await mesh.directory.client_for_task(task_id).cancel_task(task_id, account="")
    assert canceled.task.status.state == State.TASK_STATE_CANCELED
