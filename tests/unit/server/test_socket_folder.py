"""The folder of a process's socket goes with the process, also when that is killed."""

import os
import signal
import subprocess
import sys
import tempfile
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
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own for temporary files, of its children, too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


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
