"""Four quick agents, and the same four as tools of the official MCP server.

`--agent bench.mcp_agents:upper` gives a mesh one of the agents. `python -m bench.mcp_agents` runs
the server of the `mcp` SDK, as its own examples do: `MCPServer` over streamable HTTP on uvicorn, or
with `--stdio` over stdio.
"""

import socket
import sys
from collections.abc import Callable, Mapping
from typing import Final

import uvicorn
import uvloop
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from trunkline import TaskContext, agent

TOOLS: Final[Mapping[str, Callable[[str], str]]] = {
    "upper": str.upper,
    "reverse": lambda text: text[::-1],
    "count": lambda text: f"{text} has {len(text)} characters",
    "repeat": lambda text: f"{text} {text}",
}
"""The answer of each tool to a text."""


class Answer(BaseModel):
    """The structured result of each tool of the official server."""

    text: str = Field(description="The answer.")


@agent(name="upper", description="Returns a text in upper case.")
async def upper(task: TaskContext) -> str:
    """Answer."""
    return TOOLS["upper"](task.text)


@agent(name="reverse", description="Returns a text backwards.")
async def reverse(task: TaskContext) -> str:
    """Answer."""
    return TOOLS["reverse"](task.text)


@agent(name="count", description="Counts the characters of a text.")
async def count(task: TaskContext) -> str:
    """Answer."""
    return TOOLS["count"](task.text)


@agent(name="repeat", description="Says a text twice.")
async def repeat(task: TaskContext) -> str:
    """Answer."""
    return TOOLS["repeat"](task.text)


def build_official_server() -> MCPServer:
    """Return the server of the SDK with the four tools."""
    server = MCPServer("official", log_level="ERROR")

    def add(name: str, answer: Callable[[str], str]) -> None:
        annotations = ToolAnnotations(read_only_hint=True)
        about = f"Answers as the agent {name} does."

        @server.tool(name=name, description=about, annotations=annotations)
        async def tool(message: str) -> Answer:
            return Answer(text=answer(message))

    for name, answer in TOOLS.items():
        add(name, answer)
    return server


async def main() -> None:
    """Serve over stdio, or on a free port and print the address."""
    if "--stdio" in sys.argv:
        await build_official_server().run_stdio_async()
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = build_official_server().streamable_http_app()
        config = uvicorn.Config(app, log_config=None, access_log=False)
        print(f"ready mcp=http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(main())
