"""A stopped benchmark ends the servers it started, and a dead process yields no figures."""

import os
import signal
import sys
from pathlib import Path

import pytest

from bench.processes import System, used_s
from harness.mesh.processes import ended, read_line, running_process

_TESTS = Path(__file__).resolve().parents[2]
_SERVER = "import time; print('ready', flush=True); time.sleep(60)"
_SCRIPT = f"""
import asyncio, sys
from pathlib import Path
from bench.systems import run
from harness.mesh.processes import read_line, running_process

async def main():
    async with running_process(sys.executable, "-c", {_SERVER!r}, cwd=Path()) as server:
        await read_line(server, "ready")
        print(f"ready pid={{server.pid}}", flush=True)
        await asyncio.sleep(60)

run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopped_benchmark_ends_the_servers_it_started(
    number: signal.Signals, tmp_path: Path
) -> None:
    async with running_process(
        sys.executable, "-c", _SCRIPT, cwd=tmp_path, environment={"PYTHONPATH": str(_TESTS)}
    ) as script:
        server = int((await read_line(script, "ready"))["pid"])

        script.send_signal(number)
        await ended(script)

        assert script.returncode == 1
        with pytest.raises(ProcessLookupError):
            os.kill(server, 0)


async def test_a_system_with_a_dead_process_gives_no_figure(tmp_path: Path) -> None:
    async with (
        running_process(sys.executable, "-c", _SERVER, cwd=tmp_path) as front,
        running_process(sys.executable, "-c", _SERVER, cwd=tmp_path) as agent,
    ):
        await read_line(front, "ready")
        await read_line(agent, "ready")
        system = System("pair", "http://127.0.0.1", {"front": front.pid, "agent": agent.pid})
        before = system.cpu_s()
        assert used_s(system, before) >= 0

        agent.kill()
        await agent.wait()

        with pytest.raises(ProcessLookupError, match="the agent of pair has ended"):
            used_s(system, before)
