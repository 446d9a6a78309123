"""An MCP server over stdio whose tools hang, die and change, as real ones do."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CallToolResult,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)

server = MCPServer("awkward")


@server.tool(
    title="Repeat",
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    meta={"trunkline/match": [{"pattern": "^repeat (.+)$", "arguments": {"text": "{1}"}}]},
)
def repeat(text: str) -> str:
    return text


@server.tool()
async def count(n: int, ctx: Context) -> str:
    for done in range(1, n + 1):
        await ctx.report_progress(done, n, f"step {done}")
    return f"counted to {n}"


@server.tool()
async def hang(marks: str) -> str:
    """Creates files in a folder when it starts and when it is canceled."""
    (Path(marks) / "began").touch()
    try:
        await asyncio.Event().wait()
    finally:
        (Path(marks) / "canceled").touch()
    return "never"


@server.tool()
async def die(code: int) -> str:
    os._exit(code)


async def _fall_once(marks: str) -> str:
    """Ends the server when it is called for the first time, and records each call."""
    mark = Path(marks) / "calls"
    with mark.open("a") as calls:
        calls.write("x")
    if mark.stat().st_size == 1:
        os._exit(9)
    return "second time lucky"


server.add_tool(_fall_once, name="fall")
server.add_tool(_fall_once, name="fall_reading", annotations=ToolAnnotations(read_only_hint=True))
server.add_tool(
    _fall_once, name="fall_repeatable", annotations=ToolAnnotations(idempotent_hint=True)
)


@server.tool()
async def insist(marks: str) -> str:
    """Ignores cancellation."""
    (Path(marks) / "began").touch()
    with anyio.CancelScope(shield=True):
        await asyncio.Event().wait()
    return "never"


@server.tool()
def refuse() -> str:
    raise ToolError("not today")


@server.tool()
def explode() -> str:
    raise RuntimeError("a bug of the tool")


@server.tool()
def object_to(code: int) -> str:
    """Answers with an error of JSON-RPC, not with a result."""
    raise MCPError(code, "no such thing")


@server.tool()
def mend() -> CallToolResult:
    text = TextContent(type="text", text="ask for something else")
    return CallToolResult(content=[text], is_error=True, _meta={"trunkline/mendable": True})


@server.tool()
def mixed() -> CallToolResult:
    image = ImageContent(type="image", data="aGVsbG8=", mime_type="image/png")
    link = ResourceLink(type="resource_link", uri="https://example.org/a", name="a")
    return CallToolResult(content=[TextContent(type="text", text="both"), image, link])


@server.tool()
def surroundings() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
async def grandchild() -> str:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(600)", start_new_session=False
    )
    return json.dumps({"pid": child.pid})


@server.tool()
def types(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


@server.tool()
def traceparent(ctx: Context) -> str:
    return str(dict(ctx.request_context.meta or {}).get("traceparent"))


@server.tool()
async def learn(ctx: Context) -> str:
    server.add_tool(repeat, name="learned")
    await ctx.notify_tools_changed()
    return "learned"


if __name__ == "__main__":
    sys.stderr.write("starting up\n")
    server.run()
