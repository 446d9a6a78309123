"""Starting child processes."""

import asyncio
import os
import subprocess
from typing import Any

import pytest

from trunkline.tools import server_process as spawn
from trunkline.tools.server_process import ChildProcess


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_child_whose_start_is_canceled_does_not_live_on(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def popen(*given: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*given, **named))
        return started[-1]

    monkeypatch.setattr(spawn, "subprocess", _Subprocess(popen))
    starting = asyncio.ensure_future(  # noqa: TID251  it is canceled and awaited here
        ChildProcess.start(["sleep", "600"], environment=os.environ, folder=None, limit_bytes=1024)
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    (process,) = started
    assert process.returncode == -9


class _Subprocess:
    """The module, with a way to start processes that remembers them."""

    def __init__(self, popen: Any) -> None:
        self.Popen = popen
