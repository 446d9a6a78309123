"""A command uses the mesh that it is told to use, and starts one only if none is named."""

import pytest

from trunkline.cli.ephemeral_mesh import open_mesh

NOBODY = "http://127.0.0.1:1/agents/echo"


@pytest.mark.asyncio
async def test_a_flag_names_the_mesh_also_if_nobody_is_there() -> None:
    async with open_mesh(NOBODY) as mesh:
        assert (mesh.http, mesh.is_ephemeral) == (NOBODY, False)


@pytest.mark.asyncio
async def test_a_variable_names_the_mesh_also_if_nobody_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRUNKLINE_URL", NOBODY)
    async with open_mesh(None) as mesh:
        assert (mesh.http, mesh.is_ephemeral) == (NOBODY, False)
