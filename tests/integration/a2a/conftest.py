"""The bridge of most tests of A2A: a mesh with the agent `echo`, new for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from trunkline_agents.echo.agent import echo


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    """A mesh with `echo`, and its bridge."""
    async with open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest.fixture
def caller(bridged: BridgedMesh) -> Caller:
    """A caller of `echo` over JSON-RPC."""
    return bridged.at("/agents/echo")
