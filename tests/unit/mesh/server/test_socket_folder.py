"""The folder of a process's socket is removed with the process, also after a kill."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.mesh.server.socket_folder import socket_address

_HOLDER_PROGRAM = """
from trunkline.mesh.server.socket_folder import socket_address
with socket_address() as address:
    open(address.removeprefix("unix:"), "w").close()
    print(address, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test and its children a folder for temporary files; `tmp_path` is too long."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def _start_holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip().removeprefix("unix:")).parent


def test_folders_of_dead_processes_are_removed_and_those_of_running_ones_stay(
    temporary: Path,
) -> None:
    killed, abandoned = _start_holder()
    running, running_folder = _start_holder()
    with killed, running:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert abandoned.is_dir()
        with socket_address() as address:
            own = Path(address.removeprefix("unix:")).parent
            assert set(temporary.iterdir()) == {running_folder, own}
            assert own.stat().st_mode & 0o777 == 0o700
        running.communicate("\n", timeout=60)
    assert list(temporary.iterdir()) == []


def test_similar_folders_of_other_origin_stay(temporary: Path) -> None:
    empty = temporary / "trunkline-socket-empty"
    empty.mkdir()
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
    assert empty.is_dir()
    assert (full / "letters").exists()
    assert (target / "owner").exists()


def test_another_folder_is_used_if_the_path_is_too_long_for_a_socket(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    killed, abandoned = _start_holder()
    with killed:
        os.kill(killed.pid, signal.SIGKILL)
    with socket_address() as address, socket.socket(socket.AF_UNIX) as listening:
        path = Path(address.removeprefix("unix:"))
        listening.bind(str(path))
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert not abandoned.exists()
    assert not path.parent.exists()
    assert list(long.iterdir()) == []
