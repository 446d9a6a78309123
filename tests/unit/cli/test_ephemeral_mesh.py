"""A command uses the mesh that it is told to use, and starts one only if none is named."""

import asyncio
from pathlib import Path

import pytest

from trunkline.cli.ephemeral_mesh import open_mesh, start_ephemeral_mesh
from trunkline.core.network import is_listening

NOBODY = "http://127.0.0.1:1/agents/echo"


def list_names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return [path.name for path in folder.iterdir()]


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


@pytest.mark.asyncio
async def test_an_interrupt_while_the_mesh_stops_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def use() -> None:
        async with start_ephemeral_mesh() as mesh:
            started.set_result(mesh.http)

    async with asyncio.TaskGroup() as group:
        using = group.create_task(use())
        # The task runs until it waits for the end of the mesh's process.
        url = await started
        using.cancel()
    assert using.cancelled()
    assert not await is_listening(url)
    assert list_names(tmp_path) == []
    assert "error" not in capfd.readouterr().err
