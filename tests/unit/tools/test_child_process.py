"""A child process is killed with its group, and exactly once."""

import asyncio
import os
import signal
import subprocess
import threading
from typing import Any

import pytest

from trunkline.tools import child_process
from trunkline.tools.child_process import ChildProcess

LIMIT_S = 60.0


@pytest.mark.parametrize("iterations", [1, 2, 3])
async def test_a_child_whose_start_is_cancelled_is_killed(
    monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def popen(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*args, **options))
        return started[-1]

    monkeypatch.setattr(child_process, "subprocess", _Subprocess(popen))
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
    # The group has the same id, and no other process gets it before the group is killed.
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
