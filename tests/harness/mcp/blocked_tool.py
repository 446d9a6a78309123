"""A tool that runs until it is canceled, and events for its calls."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harness.mcp.bundled_servers import only_servers
from harness.remote.socket_server import listening

_SERVER = {
    "command": sys.executable,
    "args": [str(Path(__file__).with_name("hold_server.py"))],
    "trunkline": {
        "approval": "never",
        "agent": {"description": "Holds on.", "tags": ["hold"]},
    },
}


class BlockedTool:
    """The endpoint that the tool's calls connect to. Each call has a connection while it runs."""

    def __init__(self) -> None:
        self.port = 0
        self._calls: asyncio.Queue[asyncio.Event] = asyncio.Queue(1000)

    @property
    def question(self) -> str:
        """The request for which the `hold` agent, or a supervisor, calls the tool."""
        return f"hold {self.port}"

    async def wait_for_call(self) -> asyncio.Event:
        """Wait for the next call; return an event that is set once the call is canceled."""
        async with asyncio.timeout(60):
            return await self._calls.get()

    async def serve_call(self, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Serve one call."""
        ended = asyncio.Event()
        self._calls.put_nowait(ended)
        await reader.read()
        ended.set()


def mcp_flags(folder: Path, *servers: str) -> tuple[str, ...]:
    """Return the flags of a mesh with the tool, its agent `hold`, and these shipped servers."""
    return "--mcp", only_servers(folder, *servers, own={"hold": _SERVER})["TRUNKLINE_MCP_FILE"]


@asynccontextmanager
async def blocked_tool() -> AsyncIterator[BlockedTool]:
    """Listen for calls of the tool."""
    tool = BlockedTool()
    async with listening(tool.serve_call) as tool.port:
        yield tool
