"""Measures messages: Trunkline local and distributed, bare redis-py and FastStream, in one run.

`.venv/bin/python tests/bench/messages.py [--messages N] [--rounds N] [--faststream PYTHON]`

Each system delivers the same messages to one handler that counts them. A round has all systems one
after another; the figures are medians of the rounds (lowest to highest). The sender is this script
and does not count, the processes of each system and Valkey do. FastStream runs in an environment of
its own: `python -m venv DIR && DIR/bin/pip install "faststream[redis]"`, then `--faststream
DIR/bin/python`.

They do not do the same for a message: bare redis-py and FastStream call the handler in the process
that reads the stream. Trunkline calls it on a host over mTLS, as a task with a journal, in order of
each conversation, and stores the state, the attempts and the replies of the delivery.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from redis.asyncio import Redis

from bench.processes import System, used_s
from bench.report import describe_environment
from bench.rows import load
from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import open_services, running_process
from harness.valkey import ValkeyServer, running_valkey
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.messages.client import MessagingClient
from trunkline.messages.conversion import build_envelope

PEERS: Final = Path(__file__).parent / "peers"
BATCH: Final = 100
TEXT: Final = "x" * 200
POLL_S: Final = 0.005
Send: TypeAlias = Callable[[list[str]], Awaitable[None]]
# A system that is ready: its processes, and how a batch of texts is sent to it.
Opened: TypeAlias = AbstractAsyncContextManager[tuple[System, Send]]


def texts(count: int) -> list[str]:
    return [f"{number} {TEXT}" for number in range(count)]


async def until(path: Path) -> None:
    while True:
        if await asyncio.to_thread(path.exists):
            return
        await asyncio.sleep(POLL_S)


@asynccontextmanager
async def open_trunkline(
    folder: Path, count: int, *, valkey: ValkeyServer | None
) -> AsyncIterator[tuple[System, Send]]:
    """Run a mesh of three processes: registry, messages, and a host with the agent."""
    environment = {
        "PYTHONPATH": str(PEERS),
        "SINK_DONE": str(folder / "done"),
        "SINK_COUNT": str(count),
        "TRUNKLINE_MESSAGING_CONCURRENCY": "64",
        "TRUNKLINE_MESSAGING_MODE": "local" if valkey is None else "distributed",
        "TRUNKLINE_MESSAGING_URL": "" if valkey is None else valkey.url,
    }
    async with (
        open_services(folder, environment=environment) as services,
        ChannelPool(mesh_credentials()) as channels,
    ):
        await services.start("registry", "registry")
        await services.start("messages", "messages")
        await services.start("sink", "agents", "--agent", "message_sink:sink")
        async with Directory(channels, services.mesh_address) as directory:
            await directory.wait_until(lambda known: "sink" in known.list_agents(), timeout_s=60)
            client = MessagingClient(directory)

            async def send(batch: list[str]) -> None:
                await client.send([build_envelope(t, type="job", recipient="sink") for t in batch])

            pids = {name: process.pid for name, process in services.processes.items()}
            yield _system("trunkline", pids, valkey), send


@asynccontextmanager
async def open_stream_reader(
    folder: Path, count: int, *, valkey: ValkeyServer, python: str, script: str
) -> AsyncIterator[tuple[System, Send]]:
    """Run a process that reads the stream `bench`."""
    async with Redis.from_url(valkey.url) as client:
        await client.delete("bench")
        await client.xgroup_create("bench", "workers", "0", mkstream=True)

        async def send(batch: list[str]) -> None:
            pipeline = client.pipeline(transaction=False)
            for text in batch:
                pipeline.xadd("bench", {"data": text})
            await pipeline.execute()

        command = (python, str(PEERS / script), valkey.url, str(count), str(folder / "done"))
        async with running_process(*command, cwd=folder, environment=AS_USUAL) as process:
            await until(folder / "done.ready")
            yield _system(script, {"reader": process.pid}, valkey), send


def _system(name: str, pids: dict[str, int], valkey: ValkeyServer | None) -> System:
    return System(name, "", pids if valkey is None else {**pids, "valkey": valkey.pid})


async def measure(opened: Opened, folder: Path, count: int) -> tuple[float, float]:
    """Return the messages per second, and the CPU time of a message in microseconds."""
    batches = [texts(count)[first : first + BATCH] for first in range(0, count, BATCH)]
    async with opened as (system, send):
        before = system.cpu_s()
        began = time.monotonic()
        async with asyncio.timeout(600):
            for batch in batches:
                await send(batch)
            await until(folder / "done")
        seconds = time.monotonic() - began
        return count / seconds, used_s(system, before) / count * 1e6


async def run(count: int, rounds: int, faststream: str) -> None:
    """Measure all systems, in turns."""
    load_before = load()
    figures: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        with (
            tempfile.TemporaryDirectory() as folder,
            running_valkey(Path(folder) / "valkey", "--appendfsync", "everysec") as valkey,
        ):
            root = Path(folder)
            reader = partial(open_stream_reader, count=count, valkey=valkey)
            systems: dict[str, Callable[[Path], Opened]] = {
                "trunkline local": partial(open_trunkline, count=count, valkey=None),
                "trunkline distributed": partial(open_trunkline, count=count, valkey=valkey),
                "bare redis-py": partial(reader, python=sys.executable, script="streams_bare.py"),
            }
            if faststream:
                systems["faststream"] = partial(
                    reader, python=faststream, script="streams_faststream.py"
                )
            for name, open_system in systems.items():
                own = root / name.replace(" ", "-")
                own.mkdir()
                rate, cpu_us = await measure(open_system(own), own, count)
                figures.setdefault(name, []).append((rate, cpu_us))
                print(f"{name}: {rate:.0f}/s, {cpu_us:.0f} us CPU", file=sys.stderr)
    print(describe_environment(load_before))
    print(f"{count} messages, {rounds} rounds\n")
    print("| system | messages/s | CPU a message, µs |\n|---|---|---|")
    for name, runs in figures.items():
        cells = (_spread([rate for rate, _ in runs]), _spread([cpu for _, cpu in runs]))
        print(f"| {name} | {cells[0]} | {cells[1]} |")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--faststream", default="", help="the Python that has faststream[redis]")
    options = parser.parse_args()
    # The meshes of a run have one root, as those of the tests have.
    with tempfile.TemporaryDirectory() as identity:
        os.environ["TRUNKLINE_IDENTITY_FOLDER"] = f"{identity}/trunkline/meshes/temporary-0"
        asyncio.run(run(options.messages, options.rounds, options.faststream))
