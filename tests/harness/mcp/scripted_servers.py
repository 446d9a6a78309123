"""Scripted MCP servers, and functions that wait for their state."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from harness.mcp import asking_server
from harness.mcp.forked_servers import fork_servers
from harness.mesh.processes import free_address, running_process
from harness.polling import wait_for
from trunkline.core.json_values import update_struct
from trunkline.mesh.client import ToolClient
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import AdapterSettings, McpConfig, ServerConfig
from trunkline.tools.tool_call import ToolCall
from trunkline.tools.used_approvals import SqliteUsedApprovals
from trunkline.v1 import tool_service_pb2

AWKWARD = str(Path(__file__).with_name("awkward_server.py"))
RAW = str(Path(__file__).with_name("raw_server.py"))
PLAIN = ServerConfig(
    command=sys.executable, args=[str(Path(__file__).with_name("plain_server.py"))]
)
READY_TIMEOUT_S = 300.0
QUICK = AdapterSettings(restart_delay_s=0.05, restart_delay_max_s=0.2, grace_s=1.0)


class OpenGate(ApprovalGate):
    """Admits every call, for tests whose subject is the server behind the gate."""

    async def check(self, tool: tool_service_pb2.Tool, call: ToolCall) -> None:
        pass


OPEN_GATE = OpenGate(None, SqliteUsedApprovals(Path(os.devnull)))


def awkward(**more: object) -> ServerConfig:
    return ServerConfig.model_validate({"command": sys.executable, "args": [AWKWARD], **more})


def script(source: str) -> ServerConfig:
    return ServerConfig(command=sys.executable, args=["-u", "-c", source])


@asynccontextmanager
async def asking_over_http(folder: Path, address: str = "") -> AsyncIterator[str]:
    """Run the server that asks over HTTP; yield its URL when it answers, and kill it."""
    host, _, port = (address or free_address()).rpartition(":")
    command = (sys.executable, str(asking_server.__file__), port)
    environment = {"ASKING_FOLDER": str(folder)}
    async with running_process(*command, cwd=folder, environment=environment) as process:
        await wait_for(lambda: is_listening(host, int(port)))
        yield f"http://{host}:{port}/mcp"
        # Asked to end, it would wait for its clients.
        process.kill()


def is_listening(host: str, port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((host, port)) == 0


@asynccontextmanager
async def running(
    settings: AdapterSettings = QUICK, /, **servers: ServerConfig
) -> AsyncIterator[ToolAdapter]:
    await asyncio.to_thread(fork_servers)
    async with ToolAdapter(McpConfig(servers), settings=settings) as adapter:
        yield adapter


async def wait_until(adapter: ToolAdapter, predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            revision = adapter.revision
            if predicate():
                return
            await adapter.wait_for_change(revision)


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    pass


async def call(
    adapter: ToolAdapter, tool: str, server: str = "awkward", **arguments: object
) -> tool_service_pb2.ToolResult:
    requested = ToolCall(tool_request(tool, **arguments), ignore)
    return await adapter.get_server(server, tool).call(requested, OPEN_GATE)


def tool_request(tool: str, **arguments: object) -> tool_service_pb2.CallToolRequest:
    """Return the request of a call, which names no server, to be made by a server itself."""
    request = tool_service_pb2.CallToolRequest(tool=tool)
    update_struct(request.arguments, arguments)
    return request


async def collect_responses(
    client: ToolClient, request: tool_service_pb2.CallToolRequest
) -> list[tool_service_pb2.CallToolResponse]:
    """Return what a call of a tool yields: its progress, its task, and its result."""
    async with aclosing(client.call_tool(request)) as responses:
        return [response async for response in responses]


async def wait_for_file(path: Path) -> None:
    await wait_for(path.exists)


async def wait_for_exit(pid: int) -> None:
    await wait_for(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # It ended before the file was opened, or before it was read.
        return False
    # A zombie has ended, even if no process has reaped it.
    return status.rpartition(")")[2].split()[0] != "Z"
