"""`trunkline ask` sends files, names the files of the answer, and saves them."""

import contextlib
import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.agents.file_agent import files, pieces
from trunkline.cli.agent_client import AgentClient
from trunkline.cli.attachments import save_files
from trunkline.cli.commands.ask import ask
from trunkline.cli.exits import ExitCode
from trunkline.core.settings import Settings
from trunkline.errors import InvalidArgumentError, TrunklineError
from trunkline.v1.part_pb2 import Part

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    folder = tmp_path_factory.mktemp("mesh")
    settings = Settings(default_agent="files")
    # The lease is long, so that a busy machine does not expire it.
    async with open_bridged_mesh(folder, settings, lease_s=30.0) as opened:
        await opened.mesh.join(files)
        yield opened


async def _ask(
    bridged: BridgedMesh, text: str, *paths: Path, save: Path | None = None
) -> tuple[str, str]:
    """Ask; return stdout and stderr."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        files = [*map(str, paths)]
        code = await ask(text, url=bridged.url, file=files, save=save)
    assert code is ExitCode.OK
    return out.getvalue(), err.getvalue()


async def test_files_go_with_the_question(bridged: BridgedMesh, tmp_path: Path) -> None:
    small, big = tmp_path / "small.txt", tmp_path / "big.bin"
    small.write_bytes(b"small")
    big.write_bytes(bytes(1_000_000))
    out, _ = await _ask(bridged, "look", small, big)
    assert out.splitlines() == [
        f"{size} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path, size in ((small, 5), (big, 1_000_000))
    ]


async def test_files_of_the_answer_are_named_and_saved(
    bridged: BridgedMesh, tmp_path: Path
) -> None:
    content = b"".join([piece async for piece in pieces(7, 2)])
    out, _ = await _ask(bridged, "file 7 2")
    assert f"[file made.bin at {bridged.url}/artifacts/" in out
    for name in ("made.bin", "made-2.bin"):
        _, err = await _ask(bridged, "file 7 2", save=tmp_path / "saved")
        assert f"saved {tmp_path / 'saved' / name}" in err
        assert (tmp_path / "saved" / name).read_bytes() == content


async def test_a_file_that_is_too_large_or_missing_is_reported_before_the_request(
    bridged: BridgedMesh, tmp_path: Path
) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(3_000_001))
    with pytest.raises(InvalidArgumentError, match="give a URL"):
        await _ask(bridged, "look", large)
    with pytest.raises(InvalidArgumentError, match="No such file"):
        await _ask(bridged, "look", tmp_path / "none")


async def test_a_failed_download_leaves_no_file(bridged: BridgedMesh, tmp_path: Path) -> None:
    missing_url = f"{bridged.url}/artifacts/{'a' * 8}-{'0' * 24}/{'0' * 32}/gone.bin"
    async with AgentClient(bridged.url) as client:
        with pytest.raises(TrunklineError):
            await save_files(client, [Part(url=missing_url, filename="gone.bin")], tmp_path)
    assert not (tmp_path / "gone.bin").exists()
