"""Measures the CPU of a call with and without the audit log.

`.venv/bin/python tests/bench/audit_calls.py` runs two meshes in one process, one with the log, and
calls them in turns: blocks of calls that differ in nothing else. The CPU is that of the client, the
bridge and the host together, in microseconds a call.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from trunkline.core.settings import Settings
from trunkline.observe.audit import open_audit_log
from trunkline_agents.echo.agent import echo


async def measure(mesh: BridgedMesh, calls: int) -> float:
    """Return the CPU of a call, in microseconds."""
    caller = mesh.at("/")
    started_s = time.process_time()
    for _ in range(calls):
        await caller.send("echo hello")
    return (time.process_time() - started_s) / calls * 1e6


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100, help="of a block")
    parser.add_argument("--blocks", type=int, default=40, help="of each mesh")
    options = parser.parse_args()
    async with AsyncExitStack() as stack:
        meshes = []
        for is_on in (True, False):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings = Settings(data_dir=folder, audit=is_on)
            log = await stack.enter_async_context(open_audit_log(settings, process="bench"))
            mesh = await stack.enter_async_context(open_bridged_mesh(folder, audit=log))
            await mesh.mesh.join(echo)
            await measure(mesh, options.calls)
            meshes.append(mesh)
        blocks = [
            [await measure(mesh, options.calls) for mesh in meshes] for _ in range(options.blocks)
        ]
    on_us, off_us = (statistics.median(block[index] for block in blocks) for index in (0, 1))
    difference_us = statistics.median(on - off for on, off in blocks)
    print(
        f"on {on_us:.0f}, off {off_us:.0f} µs CPU a call; difference {difference_us:.0f} µs "
        f"({difference_us / off_us:+.1%}); load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    asyncio.run(main())
