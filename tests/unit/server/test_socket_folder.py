"""The folder of a process's socket goes with the process, also when that is killed."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.server.socket_folder import socket_address

_HOLDS = """
from trunkline.server.socket_folder import socket_address
with socket_address() as address:
    open(address.removeprefix("unix:"), "w").close()
    print(address, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of the test's own for temporary files, of its children, too; `tmp_path` is long."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def _holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip().removeprefix("unix:")).parent


def test_folders_of_the_dead_are_removed_and_those_of_the_living_stay(temporary: Path) -> None:
    killed, abandoned = _holder()
    living, held = _holder()
    with killed, living:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert abandoned.is_dir()
        with socket_address() as address:
            own = Path(address.removeprefix("unix:")).parent
            assert set(temporary.iterdir()) == {held, own}
            assert own.stat().st_mode & 0o777 == 0o700
        living.communicate("\n", timeout=60)
    assert list(temporary.iterdir()) == []


def test_what_looks_alike_and_is_none_of_ours_stays(temporary: Path) -> None:
    begun = temporary / "trunkline-socket-begun"
    begun.mkdir()
    full = temporary / "trunkline-socket-full"
    full.mkdir()
    (full / "owner").touch()
    (full / "letters").touch()
    target = temporary / "elsewhere"
    target.mkdir()
    (target / "owner").touch()
    (temporary / "trunkline-socket-link").symlink_to(target)
    with socket_address():
        pass
    assert begun.is_dir()
    assert (full / "letters").exists()
    assert (target / "owner").exists()


def test_where_paths_are_too_long_for_a_socket_another_place_is_found(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    killed, abandoned = _holder()
    with killed:
        os.kill(killed.pid, signal.SIGKILL)
    with socket_address() as address, socket.socket(socket.AF_UNIX) as listening:
        path = Path(address.removeprefix("unix:"))
        listening.bind(str(path))
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert not abandoned.exists()
    assert not path.parent.exists()
    assert list(long.iterdir()) == []
