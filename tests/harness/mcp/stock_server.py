"""An MCP server over stdio with a stock: it tells, reserves after an approval, and fails.

Each reservation is a line of the file `reserved` in STOCK_FOLDER.
"""

import os
from pathlib import Path

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("stock")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def in_stock(item: str) -> dict[str, int]:
    """Return the number of an item in stock."""
    return {"count": len(item)}


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
async def price(item: str) -> dict[str, int]:
    """Return the price of an item, as text, like a tool that is declared `-> dict`."""
    return {"cents": 10 * len(item)}


@server.tool(annotations=ToolAnnotations(read_only_hint=False))
async def reserve(item: str, n: int) -> str:
    """Reserve a number of an item."""
    with (Path(os.environ["STOCK_FOLDER"]) / "reserved").open("a", encoding="utf-8") as file:
        file.write(f"{n} {item}\n")
    return f"Reserved {n} {item}."


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def burn(item: str) -> str:
    """Fail."""
    raise ValueError(f"{item} does not burn")


if __name__ == "__main__":
    server.run("stdio")
