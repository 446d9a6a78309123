"""Measures when an event is visible to others: by a live watch, and by a read at another replica.

Two replicas of an agent share a PostgreSQL. The agent writes a token every 20 ms, which is the time
of the machine's monotonic clock, so that each reader in another process knows its age. Run it by

    python tests/bench/visible.py [SECONDS]
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# The processes of the mesh share an identity of their own.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
os.environ["TRUNKLINE_IDENTITY_FOLDER"] = os.environ["XDG_STATE_HOME"] + "/identity"

from harness.agents.inline_agents import texts
from harness.journal.postgres_server import PostgresServer
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.journal.batches import parse_batch
from trunkline.mesh.client import HostClient
from trunkline.v1 import snapshot_pb2

_TESTS: Final = Path(__file__).resolve().parents[1]
_ENDED: Final = 3


def _describe(name: str, ages_s: Sequence[float]) -> str:
    cuts = statistics.quantiles(ages_s, n=100)
    return (
        f"{name}: {len(ages_s)} events, p50 {cuts[49] * 1000:.1f} ms, "
        f"p95 {cuts[94] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms"
    )


async def _watch(mesh: SmallMesh, task_id: str) -> list[float]:
    """Return the ages of the events when a live watch delivers them."""
    ages_s: list[float] = []
    async with mesh.directory.watch(task_id, account="", after=0) as stream:
        async for batches in stream:
            now_ns = time.monotonic_ns()
            for batch in batches:
                for event in parse_batch(batch).events:
                    written = " ".join(event.delta.texts).split()
                    ages_s += [(now_ns - int(each)) / 1e9 for each in written]
    return ages_s


async def _read(replica: HostClient, task_id: str) -> list[float]:
    """Return the ages of the events when reads at a replica show them first."""
    ages_s: list[float] = []
    snapshot = snapshot_pb2.TaskSnapshot()
    while not snapshot.task.status.state or snapshot.task.status.state < _ENDED:
        snapshot = await replica.get_task(task_id, account="")
        now_ns = time.monotonic_ns()
        written = "".join(texts(snapshot)).split()
        ages_s += [(now_ns - int(each)) / 1e9 for each in written[len(ages_s) :]]
        await asyncio.sleep(0.002)
    return ages_s


async def measure(seconds: float) -> None:
    """Print both ages of the events of one task."""
    server = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            async with open_small_mesh(folder) as mesh, AsyncExitStack() as stack:
                for number in (1, 2):
                    await KillableAgent(
                        mesh,
                        "clock",
                        (*COMMAND, "serve", "agents", "--agent", "bench.clock_agent:clock"),
                        folder / f"machine-{number}",
                        stack,
                        _TESTS,
                        {"TRUNKLINE_STORE": server.url},
                    ).start()
                task_id = await mesh.begin(str(seconds), agent="clock")
                owner = mesh.directory.get_task_host(task_id)
                (other,) = (host for host in mesh.directory.hosts if host != owner)
                replica = mesh.directory.client_at(other.address)
                async with asyncio.TaskGroup() as group:
                    watched = group.create_task(_watch(mesh, task_id))
                    read = group.create_task(_read(replica, task_id))
                print(_describe("by a live watch", watched.result()))
                print(_describe("by reads at the other replica", read.result()))
    finally:
        server.remove()


if __name__ == "__main__":
    asyncio.run(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
