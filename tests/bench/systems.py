"""Starts the compared systems: Trunkline in two shapes, a pair of the a2a-sdk, and the floor."""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from bench.processes import System
from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.processes import read_line, running_process

TESTS = Path(__file__).resolve().parents[1]
SERVICES = "trunkline"
TOGETHER = "trunkline up"
PEER = "a2a-sdk"
FLOOR = "floor"
LIBRARIES = "libraries alone"
LIBRARIES_HTTP = "libraries alone: HTTP"
LIBRARIES_GRPC = "libraries alone: HTTP, gRPC"
LIBRARIES_SQLITE = "libraries alone: HTTP, gRPC, SQLite"
NO_JOURNAL = "trunkline without journal"
NO_TRACING = "trunkline without tracing"
NO_AUDIT = "trunkline without audit log"
ENCRYPTED = "trunkline with encryption"
NO_TLS = "trunkline without TLS"
POLICY = "trunkline with a policy"
NO_POLICY = "trunkline without policy and users"
PEER_TRACED = "a2a-sdk with a tracer"
# The path of each kind of request, in every system.
ONE_HOP = "/agents/workload"
TWO_HOPS = "/"
ECHO = "/agents/echo"

Environment: TypeAlias = Mapping[str, str]
Opener: TypeAlias = Callable[[Path, Environment], AbstractAsyncContextManager[System]]

_CLI = (sys.executable, "-m", "trunkline.cli")
_NO_JOURNAL = (sys.executable, "-m", "bench.no_journal")
_NO_TLS = (sys.executable, "-m", "bench.no_tls")
_NO_POLICY = (sys.executable, "-m", "bench.no_policy")
# Rules that each call of the workload is checked by, and passes.
_RULES = """
[policy.callers]
echo = ["supervisor"]
workload = ["supervisor"]

[policy.accounts."*"]
agents = ["supervisor", "echo", "workload"]
methods = ["SendMessage", "StreamMessage", "GetTask", "WatchTask"]
"""
_FREE = "127.0.0.1:0"
_AGENT = "bench.workload_agent:workload"


def run(script: Coroutine[object, object, None]) -> None:
    """Run a script that starts systems; SIGTERM and Ctrl-C end the systems and then the script."""

    async def stoppable() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await script

    try:
        asyncio.run(stoppable())
    except asyncio.CancelledError:
        sys.exit("stopped before the end")


class _Starter:
    """Starts processes one after the other; all of them end with the block."""

    def __init__(self, stack: AsyncExitStack, folder: Path, environment: Environment) -> None:
        self.pids: dict[str, int] = {}
        self.metrics: list[str] = []
        self._stack = stack
        self._folder = folder
        path = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(TESTS))))
        self._environment = {**environment, **AS_USUAL, "PYTHONPATH": path}

    async def start(self, role: str, command: Sequence[str]) -> dict[str, str]:
        """Start a process, and return the fields of its "ready" line."""
        environment = {**self._environment, "BENCH_ROLE": role}
        process = await self._stack.enter_async_context(
            running_process(*command, cwd=self._folder, environment=environment)
        )
        self.pids[role] = process.pid
        ready = await read_line(process, "ready ")
        self.metrics += (ready["metrics"],) if "metrics" in ready else ()
        return ready


@asynccontextmanager
async def _starter(folder: Path, environment: Environment) -> AsyncIterator[_Starter]:
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        yield _Starter(stack, folder, environment)


@asynccontextmanager
async def _services(
    folder: Path,
    environment: Environment,
    name: str,
    cli: Sequence[str] = _CLI,
    *,
    others: Sequence[str] = _CLI,
    echoes: int = 1,
) -> AsyncIterator[System]:
    """Start hosts of agents by `cli`, and the registry and the bridge by `others`.

    There are `echoes` replicas of the agent `echo`.
    """
    data = ("--data", str(folder / "data"))
    async with _starter(folder, environment) as starter:
        registry = await starter.start(
            "registry", (*others, "serve", "registry", "--mesh", _FREE, *data)
        )
        join_options = ("--mesh", registry["mesh"])
        for role, agents_ in (
            ("supervisor", ("supervisor",)),
            *((f"echo-{number}", ("echo",)) for number in range(echoes)),
            ("agent", ("--agent", _AGENT)),
        ):
            await starter.start(role, (*cli, "serve", "agents", *agents_, *join_options, *data))
        bridge = await starter.start(
            "bridge",
            (*others, "serve", "bridge", "--http", _FREE, "--a2a-grpc", _FREE, *join_options),
        )
        yield System(name, bridge["http"], starter.pids, starter.metrics)


def trunkline_services(
    folder: Path, environment: Environment, *, echoes: int = 1
) -> AbstractAsyncContextManager[System]:
    """Start registry, bridge, supervisor and the agents, each in its own process."""
    return _services(folder, environment, SERVICES, echoes=echoes)


def without_journal(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services with a journal that writes nothing."""
    return _services(folder, environment, NO_JOURNAL, _NO_JOURNAL)


def without_tls(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services with plain connections, whose peers nobody checks."""
    return _services(folder, environment, NO_TLS, _NO_TLS, others=_NO_TLS)


def with_policy(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services with rules that limit callers and accounts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trunkline.toml").write_text(_RULES)
    return _services(folder, environment, POLICY)


def without_policy(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services without rules, without users' statements and their checks."""
    return _services(folder, environment, NO_POLICY, _NO_POLICY, others=_NO_POLICY)


def without_tracing(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services with OpenTelemetry's own switch turned off."""
    return _services(folder, {**environment, "OTEL_SDK_DISABLED": "true"}, NO_TRACING)


def without_audit(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services without an audit log."""
    return _services(folder, {**environment, "TRUNKLINE_AUDIT": "false"}, NO_AUDIT)


def encrypted(folder: Path, environment: Environment) -> AbstractAsyncContextManager[System]:
    """Start the same services with a key that encrypts stored data."""
    key = base64.b64encode(os.urandom(32)).decode()
    return _services(folder, {**environment, "TRUNKLINE_ENCRYPTION_KEY": key}, ENCRYPTED)


@asynccontextmanager
async def trunkline_up(folder: Path, environment: Environment) -> AsyncIterator[System]:
    """Start everything in one process."""
    command = (
        *_CLI, "up", "--http", _FREE, "--a2a-grpc", _FREE, "--mesh", _FREE,
        "--data", str(folder / "data"), "--agent", _AGENT,
    )  # fmt: skip
    async with _starter(folder, environment) as starter:
        ready = await starter.start("all", command)
        yield System(TOGETHER, ready["http"], starter.pids)


@asynccontextmanager
async def peer(folder: Path, environment: Environment) -> AsyncIterator[System]:
    """Start a front and an agent, with a middle between them for two hops, all of the a2a-sdk."""
    async with _chain(folder, environment, "bench.peers.server") as chain:
        yield System(PEER, *chain)


@asynccontextmanager
async def peer_traced(folder: Path, environment: Environment) -> AsyncIterator[System]:
    """Start the same peer with a tracer that records spans."""
    environment = {**environment, "BENCH_TRACER": "1"}
    async with _chain(folder, environment, "bench.peers.server") as chain:
        yield System(PEER_TRACED, *chain)


@asynccontextmanager
async def floor(folder: Path, environment: Environment) -> AsyncIterator[System]:
    """Start the same chain of bare programs."""
    async with _chain(folder, environment, "bench.floor.server") as chain:
        yield System(FLOOR, *chain)


def libraries(parts: str, name: str) -> Opener:
    """Return an opener for a front and an agent of libraries alone; see `floor/libraries.py`."""

    @asynccontextmanager
    async def open_libraries(folder: Path, environment: Environment) -> AsyncIterator[System]:
        command = (sys.executable, "-m", "bench.floor.libraries")
        async with _starter(folder, {**environment, "BENCH_PARTS": parts}) as starter:
            collector = (await starter.start("collector", (*command, "collector")))["url"]
            agent = (await starter.start("agent", (*command, "agent", collector)))["url"]
            front = (await starter.start("front", (*command, "front", agent, collector)))["url"]
            yield System(name, front, starter.pids)

    return open_libraries


@asynccontextmanager
async def _chain(
    folder: Path, environment: Environment, module: str
) -> AsyncIterator[tuple[str, Mapping[str, int]]]:
    command = (sys.executable, "-m", module)
    async with _starter(folder, environment) as starter:
        agent = (await starter.start("agent", (*command, "agent")))["url"]
        middle = (await starter.start("middle", (*command, "middle", agent)))["url"]
        front = (await starter.start("front", (*command, "front", agent, middle)))["url"]
        yield front, starter.pids


OPENERS: Mapping[str, Opener] = {
    SERVICES: trunkline_services,
    TOGETHER: trunkline_up,
    PEER: peer,
    FLOOR: floor,
    NO_JOURNAL: without_journal,
    NO_TRACING: without_tracing,
    NO_AUDIT: without_audit,
    ENCRYPTED: encrypted,
    NO_TLS: without_tls,
    POLICY: with_policy,
    NO_POLICY: without_policy,
    PEER_TRACED: peer_traced,
    LIBRARIES: libraries("http grpc sqlite spans", LIBRARIES),
    LIBRARIES_HTTP: libraries("http", LIBRARIES_HTTP),
    LIBRARIES_GRPC: libraries("http grpc", LIBRARIES_GRPC),
    LIBRARIES_SQLITE: libraries("http grpc sqlite", LIBRARIES_SQLITE),
}
UNARY_ONLY = (LIBRARIES, LIBRARIES_HTTP, LIBRARIES_GRPC, LIBRARIES_SQLITE)
"""Systems that answer unary calls only, and start only if they are asked for."""
