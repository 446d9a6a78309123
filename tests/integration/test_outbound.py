"""Remote agents on the mesh: another mesh's bridge, spoken to over each binding and version."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.bridge import BridgedMesh, open_bridged_mesh
from harness.small_mesh import PATIENCE_S
from harness.tasks import said, texts
from trunkline.agents.echo import echo
from trunkline.tasks.lifecycle import State
from trunkline_bridge.outbound import RemoteSettings, remote_agent


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest.fixture(params=["JSONRPC 1.0", "JSONRPC 0.3", "HTTP+JSON 1.0", "HTTP+JSON 0.3"])
async def far(request: pytest.FixtureRequest, bridged: BridgedMesh) -> AsyncIterator[BridgedMesh]:
    binding, version = request.param.split()
    settings = RemoteSettings(
        url=f"{bridged.url}/agents/echo", name="far", bindings=(binding,), versions=(version,)
    )
    async with remote_agent(settings) as remote:
        await bridged.mesh.join(remote.agent)
        yield bridged


async def test_text_comes_through(far: BridgedMesh) -> None:
    task = await far.mesh.ask("count 300", agent="far")
    assert task.task.status.state == State.TASK_STATE_COMPLETED, said(task)
    assert texts(task) == ["".join(f"{n} " for n in range(1, 301))]
    assert task.artifacts[0].closed
    assert task.task.artifacts[0].name == "count"


async def test_a_question_is_answered_by_the_next_turn(far: BridgedMesh) -> None:
    asked = await far.mesh.ask("ask which one?", agent="far")
    assert asked.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert said(asked) == "which one?"
    done = await far.mesh.ask("this one", agent="far", task_id=asked.task.id)
    assert done.task.status.state == State.TASK_STATE_COMPLETED, said(done)
    assert texts(done) == ["answer: this one"]
