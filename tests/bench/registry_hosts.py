"""Simulates the hosts of a large mesh at one registry: `registry_hosts.py --hosts 100 1000 10000`.

The registry is the real process of `trunkline serve registry`, with mutual TLS. The hosts are tasks
of this process, which make the calls of real hosts by the real client: a registration, a stream of
renewals, and for some of them a watch. The streams share `--connections`, because ten thousand
sockets and TLS sessions of Python in one process would measure the client.

For each number of hosts, the script prints the registry's CPU and memory: for a registration, for
the renewals of all leases, and for a change that each watcher gets.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# The processes of this run share an identity of their own.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="bench-")
os.environ["TRUNKLINE_IDENTITY_FOLDER"] = f"{os.environ['XDG_STATE_HOME']}/identity"

from bench.processes import System, used_s
from bench.report import describe_environment
from bench.rows import load
from bench.systems import run
from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import read_line, running_process
from trunkline.core.backoff import Backoff
from trunkline.errors import TrunklineError
from trunkline.mesh.client import ChannelPool, MeshChannel, RegistryClient
from trunkline.v1 import agent_card_pb2, registry_service_pb2, registry_service_pb2_grpc

_RENEWALS_S: Final = 20.0
_CHANGES: Final = 5
_CONCURRENT: Final = 8
_REGISTRY: Final = "registry"
_DESCRIPTION: Final = "Answers questions about a subject, of which it knows much. " * 4


@dataclass(slots=True)
class Watcher:
    """A reader of the list of hosts."""

    revision: int = 0
    size_bytes: int = 0
    loads: int = 0
    has_changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, client: RegistryClient) -> None:
        """Read the list and its changes, until canceled."""
        async with aclosing(client.watch_agents()) as updates:
            async for update in updates:
                self.size_bytes += update.ByteSize()
                if update.loads:
                    self.loads += 1
                    continue
                self.revision = update.revision
                self.has_changed.set()


class Mesh:
    """A registry, and the hosts and watchers that are simulated at it."""

    def __init__(
        self,
        system: System,
        channels: Sequence[MeshChannel],
        group: asyncio.TaskGroup,
        *,
        lease_s: float,
    ) -> None:
        self.system = system
        self._renewal_s = lease_s / 3
        self.clients = [RegistryClient(channel) for channel in channels]
        self._stubs = [
            registry_service_pb2_grpc.RegistryServiceStub(channel) for channel in channels
        ]
        self._group = group
        self._hosts = 0
        self.turns = 0
        """The open turns that hosts report with their next renewals."""
        self.watchers: list[Watcher] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def add_hosts(self, count: int) -> None:
        """Register more hosts, and renew their leases from then on."""
        numbers = iter(range(self._hosts, self._hosts + count))
        self._hosts += count

        async def register() -> None:
            for number in numbers:
                await self.clients[number % len(self.clients)].register(_host(number))
                self._tasks.append(self._group.create_task(self._renew(number)))

        async with asyncio.TaskGroup() as registering:
            for _ in range(_CONCURRENT):
                registering.create_task(register())

    async def add_watchers(self, count: int) -> None:
        """Open more watches, and wait until each has the list."""
        added = [Watcher() for _ in range(count)]
        for number, watcher in enumerate(added):
            client = self.clients[number % len(self.clients)]
            self._tasks.append(self._group.create_task(watcher.read(client)))
            await watcher.has_changed.wait()
        self.watchers += added

    async def change(self) -> list[float]:
        """Register a host anew; return the seconds after which each watcher has the change."""
        for watcher in self.watchers:
            watcher.has_changed.clear()
        started_s = time.monotonic()

        async def wait(watcher: Watcher) -> float:
            await watcher.has_changed.wait()
            return time.monotonic() - started_s

        async with asyncio.TaskGroup() as waiting:
            tasks = [waiting.create_task(wait(watcher)) for watcher in self.watchers]
            await self.clients[0].register(_host(0))
        return [task.result() for task in tasks]

    def end(self) -> None:
        """End all hosts and watchers."""
        for task in self._tasks:
            task.cancel()

    async def _renew(self, number: int) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._stubs[number % len(self._stubs)].HoldLease(self._renewals(number))
            except TrunklineError as error:
                print(f"host {number}: {error}", file=sys.stderr)
                await backoff.pause()

    async def _renewals(self, number: int) -> AsyncIterator[registry_service_pb2.HoldLeaseRequest]:
        """Yield renewals, as a host does whose machine has a clock of its own."""
        while True:
            await asyncio.sleep(self._renewal_s)
            yield registry_service_pb2.HoldLeaseRequest(
                host_id=f"host{number}",
                load=registry_service_pb2.HostLoad(open_turns=self.turns),
            )


def _host(number: int) -> registry_service_pb2.Host:
    card = agent_card_pb2.AgentCard(
        name=f"agent-{number % 500}", description=_DESCRIPTION, version="1.0"
    )
    card.skills.add(id="answers", name="Answers", description=_DESCRIPTION, tags=["answers"])
    return registry_service_pb2.Host(
        host_id=f"host{number}",
        address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:50051",
        journal_ids=[f"host{number}"],
        agents=[registry_service_pb2.AgentRegistration(card=card)],
        store_id="store",
    )


@asynccontextmanager
async def _open(folder: Path, connections: int, lease_s: float) -> AsyncIterator[Mesh]:
    command = (
        sys.executable, "-m", "trunkline.cli", "serve", "registry",
        "--mesh", "127.0.0.1:0", "--data", str(folder),
    )  # fmt: skip
    environment = {**AS_USUAL, "TRUNKLINE_LEASE_S": str(lease_s)}
    await asyncio.to_thread(folder.mkdir)
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(
            running_process(*command, cwd=folder, environment=environment)
        )
        address = (await read_line(process, "ready "))["mesh"]
        channels = []
        for _ in range(connections):
            pool = await stack.enter_async_context(ChannelPool(mesh_credentials()))
            channels.append(pool.get(address))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        mesh = Mesh(
            System(_REGISTRY, address, {_REGISTRY: process.pid}), channels, group, lease_s=lease_s
        )
        stack.callback(mesh.end)
        yield mesh


async def _cost(mesh: Mesh, work: Callable[[], Coroutine[Any, Any, object]]) -> tuple[float, float]:
    """Return the registry's CPU seconds and the seconds that some work takes."""
    before, started_s = mesh.system.cpu_s(), time.monotonic()
    await work()
    return used_s(mesh.system, before), time.monotonic() - started_s


async def _measure(folder: Path, hosts: int, options: argparse.Namespace) -> list[str]:
    """Return the cells of a number of hosts."""
    watchers, lease_s = options.watchers, options.lease
    async with _open(folder, options.connections, lease_s) as mesh:
        await mesh.add_hosts(1)
        before_bytes = mesh.system.rss_bytes()[_REGISTRY]
        cpu_s, elapsed_s = await _cost(mesh, lambda: mesh.add_hosts(hosts - 1))
        cells = [f"{hosts:,}", f"{cpu_s / (hosts - 1) * 1e3:.2f} ms, all in {elapsed_s:.1f} s"]
        # Until the list is complete, and the hosts are saved.
        await asyncio.sleep(lease_s)
        host_bytes = (mesh.system.rss_bytes()[_REGISTRY] - before_bytes) / hosts
        cpu_s, elapsed_s = await _cost(mesh, lambda: asyncio.sleep(_RENEWALS_S))
        renewals = hosts * elapsed_s / (lease_s / 3)
        cells.append(f"{cpu_s / renewals * 1e6:.0f} µs, {100 * cpu_s / elapsed_s:.0f} % of a core")
        live = len(await mesh.clients[0].list_agents())
        assert live == hosts, f"{live} of {hosts} hosts have their leases"
        await mesh.add_watchers(watchers)
        read_bytes = sum(watcher.size_bytes for watcher in mesh.watchers)
        list_bytes = read_bytes / watchers
        after_s: list[float] = []

        async def change() -> None:
            for _ in range(_CHANGES):
                after_s.extend(await mesh.change())

        idle_s = cpu_s / elapsed_s
        cpu_s, elapsed_s = await _cost(mesh, change)
        cpu_s = max(0.0, cpu_s - idle_s * elapsed_s) / _CHANGES
        cells.append(
            f"{cpu_s * 1e3:.1f} ms, {cpu_s / watchers * 1e3:.2f} a watcher, "
            f"last after {max(after_s):.2f} s (median {statistics.median(after_s):.2f})"
        )
        cells.append(f"{list_bytes / 1e6:.2f} MB")
        loads = sum(watcher.loads for watcher in mesh.watchers)

        async def report() -> None:
            for _ in range(int(_RENEWALS_S)):
                mesh.turns += 1
                await asyncio.sleep(1)

        cpu_s, elapsed_s = await _cost(mesh, report)
        loads = sum(watcher.loads for watcher in mesh.watchers) - loads
        cpu_s = max(0.0, cpu_s - idle_s * elapsed_s)
        cells.append(f"{cpu_s / max(loads, 1) * 1e3:.2f} ms, {loads / watchers / elapsed_s:.1f}/s")
        cells.append(f"{host_bytes / 1000:.1f} KB")
        return cells


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", nargs="*", type=int, default=[100, 1000])
    parser.add_argument("--watchers", type=int, default=20)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--lease", type=float, default=10.0, help="seconds")
    options = parser.parse_args()
    load_before = load()
    head = (
        "hosts", "CPU of a registration", "CPU of a renewal", "a change", "the list",
        "changed loads, to a watcher", "memory of a host",
    )  # fmt: skip
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for hosts in options.hosts:
            cells = await _measure(Path(folder) / str(hosts), hosts, options)
            print(f"| {' | '.join(cells)} |", flush=True)
    environment = describe_environment(load_before)
    print(f"\n{environment}, {options.watchers} watchers, lease {options.lease:g} s")


if __name__ == "__main__":
    run(main())
