"""An MCP server with a tool that runs until it is canceled, and holds a connection meanwhile."""

import asyncio

from mcp.server import MCPServer

from trunkline_agents.mcp_server import run_stdio_server

server = MCPServer("hold")
_RULES = [{"pattern": "^hold (?P<port>[0-9]+)$", "arguments": {"port": "{port}"}}]


@server.tool(meta={"trunkline/match": _RULES})
async def hold(port: int) -> str:
    """Connect to the port, and hold the connection until the call is canceled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.read()
    finally:
        writer.close()
    return "released"


if __name__ == "__main__":
    run_stdio_server(server.run_stdio_async, service_name="hold")
