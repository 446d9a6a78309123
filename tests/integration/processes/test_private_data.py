"""The data of a mesh is readable only by its owner."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline import TaskState, agent
from trunkline.tasks.context import TaskContext
from trunkline.testing import mesh
from trunkline.v1 import part_pb2


@agent(name="maker", description="Makes a file.", tags=["file"])
async def maker(task: TaskContext) -> None:
    await task.artifact(name="files").append(
        part_pb2.Part(raw=b"x" * 1_000_000, filename="x.bin"), last=True
    )


@pytest.fixture
def generous() -> Iterator[None]:
    """The umask lets everyone read new files, unless the process restricts them."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous")
async def test_no_other_user_may_read_any_file_of_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with mesh(maker, bundled=["math", "supervisor"], data_dir=data, timeout_s=100) as m:
        assert (await m.ask("what is 1+2", agent="math")).text == "3"
        assert (await m.ask("what is 1+2", agent="supervisor")).text == "3"
        assert (await m.ask("make it", agent="maker")).state is TaskState.COMPLETED
        modes = {path.relative_to(data): path.stat().st_mode & 0o777 for path in data.rglob("*")}
    kinds = {path.suffix for path in modes}
    assert {".artifacts", ".checkpoints", ".db", ".json"} <= kinds, kinds
    readable = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert readable == {}
