"""A mesh for tests of supervisors; each test adds its agents."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.mesh.small_mesh import SmallMesh, open_small_mesh


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[SmallMesh]:
    async with open_small_mesh(tmp_path) as opened:
        yield opened
