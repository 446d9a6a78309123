"""Calls of tools by MCP: the agents of a mesh beside the official Python server, in one run.

`.venv/bin/python tests/bench/mcp_calls.py` takes about a minute. Users, each with a connection of
its own, call four tools one after the other without pauses, in MCP 2025-11-25 (a session for each
user) and in 2026-07-28 (no sessions). The servers take turns, so that other work on the machine
meets both. The official server answers in memory. A call of the mesh is a task with a journal: it
crosses `trunkline serve mcp` and `trunkline up`, or with `--services` that, the bridge and the
agents' host. Each answer is compared with the expected one.

The table has medians over the rounds; p50 and p99 are of a call's latency, CPU is that of all
processes of a system for a call, without the clients.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.mcp_agents import TOOLS
from bench.processes import System, used_s
from bench.systems import TESTS, run
from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.processes import read_line, running_process

SESSIONS: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"
MESH: Final = "mesh"
OFFICIAL: Final = "official"
_CLI: Final = (sys.executable, "-m", "trunkline.cli")
_FREE: Final = "127.0.0.1:0"
_CLIENT: Final = {"name": "bench", "version": "1"}
_WARM_UP_S: Final = 2.0
_TIMEOUT_S: Final = 60.0
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"mcp-session-id: *(\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    head: bytes
    body: bytes

    def read_message(self) -> dict[str, Any]:
        """Return the JSON-RPC message of a JSON body or of the last event of a stream."""
        text = self.body[self.body.rfind(b"data: ") + 6 :] if b"data: " in self.body else self.body
        message: dict[str, Any] = json.loads(text)
        return message


class User:
    """A user with a connection of its own, and a session if the version has sessions."""

    def __init__(
        self, url: str, version: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._parts = urlsplit(url)
        self._version = version
        self._reader = reader
        self._writer = writer
        self._session = ""
        self._next_id = 0

    @classmethod
    async def connect(cls, url: str, version: str) -> Self:
        """Connect, and open a session if the version has sessions."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        user = cls(url, version, reader, writer)
        if version == SESSIONS:
            hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
            response = await user._post("initialize", hello)
            session = _SESSION.search(response.head)
            assert session is not None, response
            user._session = session[1].decode()
            await user._post("notifications/initialized", None)
        return user

    async def call(self, tool: str, text: str) -> None:
        """Call a tool, and check its answer."""
        params: dict[str, Any] = {"name": tool, "arguments": {"message": text}}
        if self._version == STATELESS:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": self._version,
                "io.modelcontextprotocol/clientInfo": _CLIENT,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        response = await self._post("tools/call", params, name=tool)
        message = response.read_message()
        assert message["result"]["structuredContent"]["text"] == TOOLS[tool](text), message

    async def close(self) -> None:
        """End the session and close the connection."""
        if self._session:
            await self._send("DELETE", [], b"")
        self._writer.close()

    async def _post(self, method: str, params: object, *, name: str = "") -> Response:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            self._next_id += 1
            message |= {"id": self._next_id, "params": params}
        body = json.dumps(message).encode()
        routing = [f"Mcp-Method: {method}", f"Mcp-Name: {name}"]
        return await self._send("POST", routing if self._version == STATELESS else [], body)

    async def _send(self, verb: str, headers: Sequence[str], body: bytes) -> Response:
        lines = [
            f"{verb} {self._parts.path} HTTP/1.1",
            f"Host: {self._parts.netloc}",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        if self._session or self._version == STATELESS:
            lines.append(f"MCP-Protocol-Version: {self._version}")
        if self._session:
            lines.append(f"Mcp-Session-Id: {self._session}")
        self._writer.write("\r\n".join([*lines, "\r\n"]).encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        return Response(head, await self._read_body(head))

    async def _read_body(self, head: bytes) -> bytes:
        if length := _LENGTH.search(head):
            return await self._reader.readexactly(int(length[1]))
        body = b""
        while True:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            chunk = await self._reader.readexactly(size + 2)
            if not size:
                return body
            body += chunk[:-2]


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one turn of a server."""

    calls_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float


async def measure(system: System, version: str, *, users: int, seconds: float) -> Round:
    """Let users call the tools for a time."""
    latencies_s: list[float] = []
    clients = [await User.connect(system.url, version) for _ in range(users)]
    before = system.cpu_s()
    started_s = time.perf_counter()

    async def use(number: int, user: User) -> None:
        names = list(TOOLS)
        count = number
        while (begin_s := time.perf_counter()) < started_s + seconds:
            count += 1
            await user.call(names[count % len(names)], f"text {number} {count}")
            latencies_s.append(time.perf_counter() - begin_s)

    async with asyncio.timeout(seconds + _TIMEOUT_S), asyncio.TaskGroup() as group:
        for number, user in enumerate(clients):
            group.create_task(use(number, user))
    took_s = time.perf_counter() - started_s
    cpu_s = used_s(system, before)
    for user in clients:
        await user.close()
    cuts = statistics.quantiles(latencies_s, n=100)
    calls = len(latencies_s)
    return Round(calls / took_s, cuts[49] * 1000, cuts[98] * 1000, cpu_s / calls * 1000)


class _Starter:
    """Starts the processes of a system."""

    def __init__(self, stack: AsyncExitStack, folder: Path, path: Sequence[str]) -> None:
        self.pids: dict[str, int] = {}
        self._stack = stack
        self._folder = folder
        self._environment = {"PYTHONPATH": os.pathsep.join([*path, str(TESTS)]), **AS_USUAL}

    async def start(self, role: str, *command: str) -> dict[str, str]:
        """Start a process, and return the fields of its "ready" line."""
        process = await self._stack.enter_async_context(
            running_process(*command, cwd=self._folder, environment=self._environment)
        )
        self.pids[role] = process.pid
        return await read_line(process, "ready ")


@asynccontextmanager
async def open_systems(
    folder: Path, path: Sequence[str], *, as_services: bool
) -> AsyncIterator[dict[str, System]]:
    """Start the mesh and the official server."""
    agents = [word for name in TOOLS for word in ("--agent", f"bench.mcp_agents:{name}")]
    data = ("--data", str(folder / "data"))
    async with AsyncExitStack() as stack:
        mesh = _Starter(stack, folder, path)
        if as_services:
            ready = await mesh.start("registry", *_CLI, "serve", "registry", "--mesh", _FREE, *data)
            join = ("--mesh", ready["mesh"])
            await mesh.start("agents", *_CLI, "serve", "agents", *agents, *join, *data)
            bridge = ("serve", "bridge", "--http", _FREE, "--a2a-grpc", _FREE)
            ready |= await mesh.start("bridge", *_CLI, *bridge, *join)
        else:
            address = ("--http", _FREE, "--a2a-grpc", _FREE, "--mesh", _FREE)
            ready = await mesh.start("up", *_CLI, "up", *address, *data, *agents)
        mcp = ("serve", "mcp", "--http", _FREE, "--url", ready["http"], "--mesh", ready["mesh"])
        url = (await mesh.start("mcp", *_CLI, *mcp))["mcp"]
        official = _Starter(stack, folder, ())
        other = await official.start("official", sys.executable, "-m", "bench.mcp_agents")
        yield {
            MESH: System(MESH, url, mesh.pids),
            OFFICIAL: System(OFFICIAL, other["mcp"], official.pids),
        }


async def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn of a server")
    parser.add_argument("--services", action="store_true", help="the mesh's services by themselves")
    parser.add_argument("--path", nargs="+", default=[], help="code of another checkout")
    options = parser.parse_args()
    rounds: dict[tuple[str, str], list[Round]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with open_systems(
            Path(folder), options.path, as_services=options.services
        ) as systems:
            for number in range(options.rounds + 1):
                for version in (SESSIONS, STATELESS):
                    for name, system in systems.items():
                        seconds = options.seconds if number else _WARM_UP_S
                        figures = await measure(
                            system, version, users=options.users, seconds=seconds
                        )
                        # The first round warms the servers up.
                        if number:
                            rounds.setdefault((version, name), []).append(figures)
    print(f"{options.users} users, {len(TOOLS)} tools, load {os.getloadavg()[0]:.1f}")
    print("| MCP | server | calls/s | p50 ms | p99 ms | CPU ms a call |\n|---|---|---|---|---|---|")
    for (version, name), all_figures in rounds.items():
        cells = (
            f"{statistics.median(getattr(each, field) for each in all_figures):.{digits}f}"
            for field, digits in (("calls_per_s", 0), ("p50_ms", 0), ("p99_ms", 0), ("cpu_ms", 2))
        )
        print(f"| {version} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    run(main())
