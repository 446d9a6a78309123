"""Child processes of MCP servers: their environment and their start."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from trunkline.tools import server_process
from trunkline.tools.config import ServerConfig
from trunkline.tools.server_process import ChildProcess, build_environment

SERVER = ServerConfig(command="mcp-server")
LIMIT_S = 60.0


@pytest.mark.parametrize("iterations", [1, 2, 3])
async def test_a_child_whose_start_is_cancelled_is_killed(
    monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def popen(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*args, **options))
        return started[-1]

    monkeypatch.setattr(server_process, "subprocess", _Subprocess(popen))
    start_task = asyncio.ensure_future(  # noqa: TID251  the test cancels and awaits it
        ChildProcess.start(["sleep", "600"], environment=os.environ, folder=None, limit_bytes=1024)
    )
    for _ in range(iterations):
        await asyncio.sleep(0)
    start_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start_task
    (process,) = started
    assert process.returncode == -9


async def test_a_group_outlives_its_leader_and_gets_no_signal_after_it_was_killed() -> None:
    script = "sleep 600 </dev/null >/dev/null 2>&1 & echo $!; exit 3"
    child = await ChildProcess.start(
        ["/bin/sh", "-c", script], environment=os.environ, folder=None, limit_bytes=1024
    )
    other = int(await child.stdout.readline())
    await child.wait()
    assert child.returncode == 3
    # Its id is that of the group, and no other process gets it before the group was killed.
    assert os.getpgid(child.pid) == os.getpgid(other) == child.pid
    child.kill_group()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread(_wait_for_thread, f"reaper of {child.pid}")
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    signalled = await asyncio.create_subprocess_exec("sleep", "600", process_group=0)
    # As if it had got the id of the former group.
    child.pid = signalled.pid
    child.signal_group(signal.SIGKILL)
    await child.kill()
    signalled.terminate()
    # Nothing else has ended it.
    assert await signalled.wait() == -signal.SIGTERM


def _wait_for_thread(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(LIMIT_S)


class _Subprocess:
    """The subprocess module with another Popen."""

    def __init__(self, popen: Any) -> None:
        self.Popen = popen


def test_the_interpreters_folder_comes_first_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/somewhere")
    folder = str(Path(sys.executable).parent)
    assert build_environment(SERVER, {}, {})["PATH"] == f"{folder}{os.pathsep}/somewhere"


def test_the_entrys_environment_wins_and_other_variables_are_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SECRET_TOKEN", "made up")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("HOME", "/home")
    environment = build_environment(
        SERVER, {"OTEL_SERVICE_NAME": "mine", "PATH": "/bin"}, {"OTEL_SERVICE_NAME": "mcp-a"}
    )
    assert environment == {
        "LANG": "C",
        "LC_ALL": "C",
        "HOME": "/home",
        "PATH": "/bin",
        "OTEL_SERVICE_NAME": "mine",
        "PYTHONSAFEPATH": "1",
    }


@pytest.mark.parametrize(
    ("entry", "is_safe"),
    [
        ({"command": "python", "args": ["-m", "mcp_server_time"]}, True),
        ({"command": "python", "args": ["-m", "server", "notes.py"]}, True),
        ({"command": "python", "args": ["-mserver"]}, True),
        ({"command": "python", "args": ["-um", "server", "notes.py"]}, True),
        ({"command": "python", "args": ["-Bc", "import server", "notes.py"]}, True),
        ({"command": "python", "args": ["-Wignore::m", "server.py"]}, False),
        ({"command": "uvx", "args": ["mcp-server-time"]}, True),
        # Each names the folder that is searched.
        ({"command": "python", "args": ["server.py"]}, False),
        ({"command": "python", "args": ["-u", "/srv/server.py", "-c", "server.toml"]}, False),
        ({"command": "python", "args": ["-m", "server"], "cwd": "/srv"}, False),
    ],
)
def test_a_servers_python_searches_the_current_folder_only_if_the_entry_names_it(
    entry: dict[str, Any], is_safe: bool
) -> None:
    environment = build_environment(ServerConfig.model_validate(entry), {}, {})
    assert environment.get("PYTHONSAFEPATH") == ("1" if is_safe else None)


def test_an_entry_may_let_python_search_the_current_folder() -> None:
    assert build_environment(SERVER, {"PYTHONSAFEPATH": ""}, {})["PYTHONSAFEPATH"] == ""
