"""A mesh whose processes each have a machine of their own: a node, with its data and its clock."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.histories.history import Kind, Record, now
from harness.mesh.command_line import COMMAND
from harness.mesh.processes import WITH_HARNESS, read_line, running_process
from harness.network.nodes import Network, Node

HOSTS: Final = ("host-1", "host-2", "host-3")
BRIDGES: Final = ("bridge-1", "bridge-2", "bridge-3")
REGISTRIES: Final = ("registry-1", "registry-2")
SERVICES: Final = (*REGISTRIES, *BRIDGES, *HOSTS)
AGENTS: Final = ("witness", "talker")
CLIENTS: Final = "clients"
DATABASES: Final = ("database-1", "database-2")
_MESH_PORT: Final = 7000
_HTTP_PORT: Final = 8000
_GRPC_PORT: Final = 8001
_CLOCK: Final = str(Path(__file__).parents[1] / "clock")
_RESTART_PAUSE_S: Final = 0.2


@dataclass(slots=True)
class Service:
    """A process that is started again whenever it ends, as a process manager does."""

    name: str
    node: Node
    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    exits: list[Record] = field(default_factory=list)
    """The ends of processes that no fault had killed."""
    _process: asyncio.subprocess.Process | None = None
    _may_run: asyncio.Event = field(default_factory=asyncio.Event)
    _is_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Keep the process running, unless it is held down, until the caller is canceled."""
        self._may_run.set()
        while True:
            await self._may_run.wait()
            async with AsyncExitStack() as stack:
                log = stack.enter_context((self.folder / f"{self.name}.log").open("ab"))
                process = await stack.enter_async_context(
                    running_process(
                        *self.node.entry, *COMMAND, "serve", *self.words,
                        cwd=self.folder, environment=self.environment, stderr=log,
                    )
                )  # fmt: skip
                self._process = process
                with suppress(AssertionError):
                    # A host is on standby while another one has its name.
                    await read_line(process, ("ready ", "standby "))
                    self._is_up.set()
                await process.wait()
                self._is_up.clear()
                if self._may_run.is_set() and process.returncode is not None:
                    code = f"{process.returncode}"
                    self.exits.append(Record(now(), Kind.EXIT, where=self.name, text=code))
            await asyncio.sleep(_RESTART_PAUSE_S)

    async def until_up(self) -> None:
        """Wait until the process says that it is ready, or on standby."""
        await self._is_up.wait()

    def kill(self) -> None:
        """Kill the process and hold it down."""
        self._may_run.clear()
        self._signal(signal.SIGKILL)

    async def start(self) -> None:
        """Let the process run again; return when it is ready."""
        self._may_run.set()
        await self.until_up()

    def freeze(self) -> None:
        """Stop the process. It keeps its sockets."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process, if another host has not killed it meanwhile."""
        self._signal(signal.SIGCONT)

    def move_clock(self, seconds: float) -> None:
        """Let the wall clock of the process jump, to this distance from the machine's."""
        path = Path(self.environment["CLOCK_OFFSET_FILE"])
        # An atomic replace, because the clock may read the file at any moment.
        path.with_suffix(".next").write_text(str(int(seconds)))
        path.with_suffix(".next").replace(path)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


@dataclass(frozen=True, slots=True)
class Machines:
    """The services of a mesh, by the names of their nodes."""

    network: Network
    services: Mapping[str, Service]

    @property
    def bridges(self) -> dict[str, str]:
        """The URLs of the bridges."""
        return {name: f"http://{self.network.nodes[name].host}:{_HTTP_PORT}" for name in BRIDGES}


@asynccontextmanager
async def open_machines(
    network: Network,
    folder: Path,
    *,
    effects: Path,
    lease_s: float,
    store: str = "",
    has_clocks: bool = False,
) -> AsyncIterator[Machines]:
    """Run a mesh whose hosts each serve the agents, for the length of a block.

    Without a `store`, hosts and registries share a folder, as processes of one machine do. With
    clocks that can jump, processes start slowly.
    """
    common = {
        **WITH_HARNESS,
        "TRUNKLINE_LEASE_S": str(lease_s),
        "TRUNKLINE_INSECURE": "true",
        "WITNESS_EFFECTS": str(effects),
    }
    mesh = ",".join(f"{network.nodes[name].host}:{_MESH_PORT}" for name in REGISTRIES)
    services: dict[str, Service] = {}
    for name in SERVICES:
        node = network.nodes[name]
        data = folder / (name if store or name in BRIDGES else "shared")
        environment = {**common, "WITNESS_NODE": name}
        if name not in BRIDGES and store:
            environment["TRUNKLINE_STORE"] = store
        if has_clocks:
            environment |= _clock(folder, name, common["PYTHONPATH"])
        words = (*_words(name, node.host, mesh), "--data", str(data))
        services[name] = Service(name, node, words, folder, environment)
    async with asyncio.TaskGroup() as group:
        running: list[asyncio.Task[None]] = []
        try:
            # The first registry makes the identity of the mesh, which all others need.
            for names in (REGISTRIES[:1], (*REGISTRIES[1:], *BRIDGES, *HOSTS)):
                running += [group.create_task(services[name].run()) for name in names]
                for name in names:
                    await services[name].until_up()
            yield Machines(network, services)
        finally:
            for service in services.values():
                service.thaw()
            for each in running:
                each.cancel()


def _words(name: str, host: str, mesh: str) -> Sequence[str]:
    if name in REGISTRIES:
        return ("registry", "--mesh", mesh, "--listen", f"{host}:{_MESH_PORT}")
    if name in BRIDGES:
        http, grpc = f"{host}:{_HTTP_PORT}", f"{host}:{_GRPC_PORT}"
        return ("bridge", "--mesh", mesh, "--http", http, "--a2a-grpc", grpc)
    agents = (word for name in AGENTS for word in ("--agent", f"harness.agents.witness:{name}"))
    return ("agents", "--mesh", mesh, "--listen", f"{host}:{_MESH_PORT}", *agents)


def _clock(folder: Path, name: str, path: str) -> dict[str, str]:
    offset = folder / f"{name}.clock"
    offset.write_text("0")
    return {"CLOCK_OFFSET_FILE": str(offset), "PYTHONPATH": os.pathsep.join((_CLOCK, path))}
