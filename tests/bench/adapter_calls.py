"""Measures what the tool adapter adds to a call of an MCP tool.

`.venv/bin/python tests/bench/adapter_calls.py` calls one tool of the official Python server over
stdio, in turns: by the official client in this process, and by `trunkline serve tools` over gRPC.
Both start a server of their own. One call at a time, and then `--callers` at once. The tool has an
output schema, by which both check each result. CPU is that of this process, and of the adapter
without the MCP server.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcp import Client, StdioServerParameters, stdio_client

from bench.mcp_agents import TOOLS
from bench.processes import used_by
from bench.systems import TESTS, run
from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import read_line, running_process
from trunkline.core.json_values import build_struct, struct_json
from trunkline.mesh.client import ChannelPool, ToolClient
from trunkline.v1 import tool_service_pb2

_CLI = (sys.executable, "-m", "trunkline.cli")
_SERVER = ("-m", "bench.mcp_agents", "--stdio")
_FREE = "127.0.0.1:0"
_START_S = 60.0
_TOOL = "upper"

Call: TypeAlias = Callable[[str], Awaitable[str]]


@asynccontextmanager
async def open_direct(environment: Mapping[str, str]) -> AsyncIterator[Call]:
    """Connect the official client to a server."""
    server = StdioServerParameters(
        command=sys.executable, args=list(_SERVER), env={**os.environ, **environment}
    )
    async with Client(stdio_client(server)) as client:

        async def call(text: str) -> str:
            result = await client.call_tool(_TOOL, {"message": text})
            return str((result.structured_content or {})["text"])

        yield call


@asynccontextmanager
async def open_adapter(
    folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[tuple[Call, int]]:
    """Start an adapter with a server; yield the process id of the adapter, too."""
    entry = {"command": sys.executable, "args": list(_SERVER), "env": dict(environment)}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"official": entry}}))
    pids: dict[str, int] = {}
    async with AsyncExitStack() as stack:

        async def start(role: str, *command: str) -> dict[str, str]:
            process = await stack.enter_async_context(
                running_process(*_CLI, "serve", *command, cwd=folder, environment=environment)
            )
            pids[role] = process.pid
            return await read_line(process, "ready ")

        registry = await start("registry", "registry", "--mesh", _FREE, "--data", str(folder))
        ready = await start("adapter", "tools", "--mesh", registry["mesh"], "--mcp", str(file))
        channels = await stack.enter_async_context(ChannelPool(mesh_credentials()))
        tools = ToolClient(channels.get(ready["grpc"]))
        await tools.wait_for_tools(timeout_s=_START_S)

        async def call(text: str) -> str:
            request = tool_service_pb2.CallToolRequest(server="official", tool=_TOOL)
            request.arguments.CopyFrom(build_struct({"message": text}))
            result: tool_service_pb2.ToolResult | None = None
            async for response in tools.call_tool(request):
                result = response.result
            assert result is not None
            return str(struct_json(result.structured_content)["text"])

        yield call, pids["adapter"]


async def measure(call: Call, calls: int, callers: int) -> tuple[float, float]:
    """Return the median time of a call and the time a call over all, in milliseconds."""
    times_s: list[float] = []

    async def use(number: int) -> None:
        for count in range(calls // callers):
            text = f"text {number} {count}"
            begin_s = time.perf_counter()
            assert await call(text) == TOOLS[_TOOL](text)
            times_s.append(time.perf_counter() - begin_s)

    begin_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(callers):
            group.create_task(use(number))
    took_s = time.perf_counter() - begin_s
    return statistics.median(times_s) * 1000, took_s / len(times_s) * 1000


async def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=400, help="in a turn")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--paths", nargs="+", default=[""], help="checkouts, to compare their code")
    options = parser.parse_args()
    rows: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    async with AsyncExitStack() as stack:
        calls: dict[str, tuple[Call, int | None]] = {}
        for path in options.paths:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            code = (f"{path}/services", f"{path}/bridge") if path else ()
            environment = {"PYTHONPATH": os.pathsep.join((*code, str(TESTS))), **AS_USUAL}
            if not calls:
                calls["direct"] = await stack.enter_async_context(open_direct(environment)), None
            name = f"adapter {path}".strip()
            calls[name] = await stack.enter_async_context(open_adapter(folder, environment))
        for number in range(options.rounds + 1):
            for callers in (1, options.callers):
                for name, (call, pid) in calls.items():
                    before_s = time.process_time() + used_by(pid)
                    p50_ms, each_ms = await measure(call, options.calls, callers)
                    cpu_s = time.process_time() + used_by(pid) - before_s
                    # The first round warms up.
                    if number:
                        row = (p50_ms, each_ms, cpu_s / options.calls * 1000)
                        rows.setdefault((name, callers), []).append(row)
    print(f"{options.rounds} rounds of {options.calls} calls, load {os.getloadavg()[0]:.1f}")
    print("| callers | by | p50 ms | over direct, of each round | ms a call | CPU ms a call |")
    print("|---|---|---|---|---|---|")
    for (name, callers), figures in sorted(rows.items(), key=lambda row: row[0][1]):
        direct = rows["direct", callers]
        over = sorted(own[0] - other[0] for own, other in zip(figures, direct, strict=True))
        p50, each, cpu = (statistics.median(column) for column in zip(*figures, strict=True))
        spread = f"{statistics.median(over):.2f} ({over[0]:.2f} to {over[-1]:.2f})"
        print(f"| {callers} | {name} | {p50:.2f} | {spread} | {each:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as identity:
        os.environ["TRUNKLINE_IDENTITY_FOLDER"] = f"{identity}/trunkline/meshes/temporary-0"
        run(main())
