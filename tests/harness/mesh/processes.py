"""Real processes on real sockets: a mesh, and agents that join it."""

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import httpx2

from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import COMMAND, start_process
from harness.polling import poll

# Enough for eight processes to start at once on a busy machine, and less than a test's timeout.
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 300.0
WITH_HARNESS: Final[Mapping[str, str]] = {
    "PYTHONPATH": os.pathsep.join(
        (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    )
}
"""Variables of a process that imports modules of the harness."""


class ProcessEndedError(AssertionError):
    """A process ended before it was ready."""


@dataclass(frozen=True, slots=True)
class MeshProcess:
    """`trunkline up`, serving."""

    process: asyncio.subprocess.Process
    http_url: str
    mesh_address: str
    a2a_grpc_address: str


async def read_line(
    process: asyncio.subprocess.Process, start: str | tuple[str, ...]
) -> dict[str, str]:
    """Wait for a line of stdout that begins with `start`, or with one of several starts.

    Return its NAME=VALUE words.
    """
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(START_TIMEOUT_S):
        while line := (await process.stdout.readline()).decode():
            lines.append(line)
            if line.startswith(start):
                return dict(word.partition("=")[::2] for word in line.split()[1:])
    raise ProcessEndedError(f"ended without a line {start!r}: {lines}")


async def ended(process: asyncio.subprocess.Process) -> None:
    """Wait until a process that was told to end has ended; return its exit code."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        raise


@asynccontextmanager
async def running_process(
    *command: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: BinaryIO | int = asyncio.subprocess.PIPE,
    stderr: BinaryIO | int | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command for the length of a block, then stop it and assert that it ends."""
    process = await start_process(
        *command,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        environment={**os.environ, **(environment or {})},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            # A test may have stopped it by SIGSTOP.
            process.send_signal(signal.SIGCONT)
        await ended(process)


@asynccontextmanager
async def running_mesh(
    folder: Path,
    *flags: str,
    servers: Sequence[str] | None = (),
    environment: Mapping[str, str] | None = None,
    stderr: BinaryIO | int | None = None,
) -> AsyncIterator[MeshProcess]:
    """Run `trunkline up` on free ports with its data below `folder`.

    It has these `servers` of the shipped ones; None, or a file in the flags: all of them.
    """
    variables = _limit_servers(folder, flags, servers) | dict(environment or {})
    command: Sequence[str] = (
        *COMMAND, "up",
        "--http", "127.0.0.1:0", "--a2a-grpc", "127.0.0.1:0", "--mesh", "127.0.0.1:0",
        "--data", str(folder / "data"),
        *flags,
    )  # fmt: skip
    async with running_process(
        *command, cwd=folder, environment=variables, stderr=stderr
    ) as process:
        ready = await read_line(process, "ready ")
        yield MeshProcess(process, ready["http"], ready["mesh"], ready["a2a-grpc"])


def _limit_servers(
    folder: Path, flags: Sequence[str], servers: Sequence[str] | None
) -> dict[str, str]:
    has_file = servers is None or "--mcp" in flags
    return {} if has_file else only_servers(folder, *servers or ())


BUNDLED: Final = ("supervisor", "echo", "math", "currency")


class Services:
    """A mesh whose services are separate processes: `registry`, `bridge`, `tools`, and agents.

    Each agent has its own process, with the agent's name.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        folder: Path,
        environment: Mapping[str, str],
        host: str = "127.0.0.1",
    ) -> None:
        """Without the bridge, which is public, they listen at `host`."""
        self._host = host
        self.mesh_address = ""
        self.http_url = ""
        self.metrics_urls: dict[str, str] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._stack = stack
        self._folder = folder
        self._environment = dict(environment)
        # The command and the address of each service, with which it is restarted.
        self._words: dict[str, tuple[str, ...]] = {}
        self._addresses: dict[str, str] = {}

    def address(self, name: str) -> str:
        """Return the address of a service that is ready."""
        return self._addresses[name]

    def reserve_mesh_address(self, registries: int = 1) -> None:
        """Choose the addresses of `registry`, `registry-2` and so on before they start."""
        names = ["registry", *(f"registry-{number}" for number in range(2, registries + 1))]
        self._addresses |= {name: free_address(self._host) for name in names}
        self.mesh_address = ",".join(self._addresses[name] for name in names)

    async def start(self, name: str, *words: str, environment: Mapping[str, str] = {}) -> None:
        """Start a service by the arguments of `trunkline serve`; return when it is ready."""
        await self.launch(name, *words, environment=environment)
        await self.ready(name)

    async def launch(self, name: str, *words: str, environment: Mapping[str, str] = {}) -> None:
        """Start a service and don't wait for it."""
        self._words[name] = words
        command = (
            *COMMAND,
            "serve",
            *words,
            *self._address_options(name),
        )
        self.processes[name] = await self._stack.enter_async_context(
            running_process(
                *command, cwd=self._folder, environment=self._environment | dict(environment)
            )
        )

    async def ready(self, name: str) -> None:
        """Wait until a service that was launched is ready."""
        values = await read_line(self.processes[name], "ready ")
        self.metrics_urls[name] = values.get("metrics", "")
        match values:
            case {"mesh": address}:
                self._addresses[name] = address
                if "," not in self.mesh_address:
                    self.mesh_address = address
            case {"http": url}:
                self.http_url = url
                self._addresses[name] = url.removeprefix("http://")
            case {"grpc": address}:
                self._addresses[name] = address

    async def kill(self, name: str) -> None:
        """Send SIGKILL; return when the process is gone."""
        self.processes[name].kill()
        await self.processes[name].wait()

    async def terminate(self, name: str) -> int:
        """Send SIGTERM; return the exit code."""
        self.processes[name].terminate()
        async with asyncio.timeout(STOP_TIMEOUT_S):
            return await self.processes[name].wait()

    def stop(self, name: str) -> None:
        """Send SIGSTOP: the process keeps its sockets and does nothing."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def cont(self, name: str) -> None:
        """Send SIGCONT. A process that was killed meanwhile stays dead."""
        with contextlib.suppress(ProcessLookupError):
            self.processes[name].send_signal(signal.SIGCONT)

    async def restart(self, name: str) -> None:
        """Restart a service that has ended, at its old address; return when it is ready.

        A process that starves past its lease is killed by the next owner of its journal. It is
        then started again, as a process manager would do.
        """
        assert self.processes[name].returncode is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                await self.launch(name, *self._words[name])
                try:
                    return await self.ready(name)
                except ProcessEndedError:
                    if await self.processes[name].wait() != -signal.SIGKILL:
                        raise

    def _address_options(self, name: str) -> tuple[str, ...]:
        """Return the options for the service's address and its mesh."""
        option = {"registry": "--mesh", "bridge": "--http"}.get(name, "--listen")
        if "," in self.mesh_address and name.startswith("registry"):
            own = ("--listen", self._addresses[name], "--data", str(self._folder / "data"))
            return ("--mesh", self.mesh_address, *own)
        # While it is down, no other process may get its port.
        host = "127.0.0.1" if name == "bridge" else self._host
        options = (option, self._addresses.setdefault(name, free_address(host)))
        if name == "registry":
            return (*options, "--data", str(self._folder / "data"))
        join = ("--mesh", self.mesh_address)
        other = ("--a2a-grpc", "127.0.0.1:0") if name == "bridge" else ()
        data = ("--data", str(self._folder / "data"))
        return (*options, *other, *join, *(() if name in ("bridge", "tools") else data))


@asynccontextmanager
async def open_services(
    folder: Path, *, environment: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Services]:
    """Yield a mesh without services, with its data below `folder`; the test starts them."""
    async with AsyncExitStack() as stack:
        services = Services(stack, folder, environment or {}, host)
        try:
            yield services
        finally:
            # All at once, because one by one takes long. The registry gets the others' spans.
            remaining = [
                process
                for name, process in services.processes.items()
                if not name.startswith("registry") and process.returncode is None
            ]
            for process in remaining:
                process.terminate()
                process.send_signal(signal.SIGCONT)
            for process in remaining:
                await ended(process)


@asynccontextmanager
async def running_services(
    folder: Path,
    *flags: str,
    agents: Sequence[str] = BUNDLED,
    others: Mapping[str, str] | None = None,
    servers: Sequence[str] | None = (),
    environment: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Services]:
    """Run registry, bridge, tool adapter and each agent in separate processes, ready to answer.

    `others` are agents from modules, MODULE:NAME by their names. `flags` are those of `up`.
    The tool adapter has these `servers` of the shipped ones; None, or a file in the flags: all.
    """
    options = _Options(flags)
    variables = _limit_servers(folder, flags, servers) | dict(environment or {})
    async with open_services(folder, environment=variables, host=host) as services:
        await services.start("registry", "registry")
        await services.launch("bridge", "bridge", *options.of("--default"))
        await services.launch("tools", "tools", *options.of("--mcp"))
        for name in agents:
            await services.launch(name, "agents", name, *options.of("--mcp"))
        for name, spec in (others or {}).items():
            await services.launch(name, "agents", "--agent", spec)
        for name in services.processes:
            if name != "registry":
                await services.ready(name)
        await until_listed(services.http_url, *agents, *(others or ()))
        yield services


async def until_listed(url: str, *agents: str) -> None:
    """Wait until the bridge has heard from the registry of these agents, which are ready."""
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=START_TIMEOUT_S) as client:
        for name in agents:
            await poll(partial(client.get, f"/agents/{name}/.well-known/agent-card.json"), _is_card)


def _is_card(response: httpx2.Response) -> bool:
    return response.status_code != httpx2.codes.NOT_FOUND


class _Options:
    """Options of `up`, given to the services that have them."""

    def __init__(self, words: Sequence[str]) -> None:
        self._values = dict(zip(words[::2], words[1::2], strict=True))

    def of(self, name: str) -> tuple[str, ...]:
        return (name, self._values[name]) if name in self._values else ()


_WORKERS = 9
_PORTS_OF_A_WORKER = 2_500


def _ports() -> Iterator[int]:
    """Yield ports for this process, each repeated as late as possible.

    All are below the ephemeral range, so the system assigns them to no other process.
    Concurrent test workers have other ports. `random` would give all workers the same ports,
    because each test seeds it.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    share = int(worker or os.getpid()) % _WORKERS
    first = secrets.randbelow(_PORTS_OF_A_WORKER)
    for number in itertools.count(first):
        yield 10_240 + share * _PORTS_OF_A_WORKER + number % _PORTS_OF_A_WORKER


_free_ports = _ports()


def free_address(host: str = "127.0.0.1") -> str:
    """Return an unused address of this machine, for a server that starts later."""
    for port in _free_ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return f"{host}:{port}"
    raise AssertionError("no port is free")
