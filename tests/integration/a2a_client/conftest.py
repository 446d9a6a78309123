"""A mesh, and an agent elsewhere that answers by a script."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from harness.remote.scripted_agent import ScriptedAgent, scripted_agent


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[SmallMesh]:
    async with open_small_mesh(tmp_path) as mesh:
        yield mesh


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as agent:
        yield agent
