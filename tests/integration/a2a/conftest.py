"""The mesh of most tests of A2A, and its caller."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from trunkline_agents.echo.agent import echo


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    """A mesh with `echo`, and its bridge, for all tests of a module."""
    async with open_bridged_mesh(tmp_path_factory.mktemp("mesh")) as opened:
        await opened.mesh.join(echo)
        yield opened


@pytest.fixture
def caller(bridged: BridgedMesh) -> Caller:
    """A caller of `echo` over JSON-RPC."""
    return bridged.at("/agents/echo")
