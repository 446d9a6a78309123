"""An MCP server over stdio that orders: each order is a line of the file `orders` in SHOP_FOLDER.

Writing and answering take a moment each, so that a test can kill a process between them.
"""

import asyncio
import os
from pathlib import Path

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("shop")

_PAUSE_S = 0.02
_MATCH = [
    {
        "pattern": r"order (?P<n>\d+) (?P<item>\w+).*",
        "arguments": {"n": {"from": "{n}", "type": "number"}, "item": "{item}"},
    }
]


@server.tool(
    title="Order",
    annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True),
    meta={"trunkline/match": _MATCH},
)
async def order(n: int, item: str) -> str:
    """Order a number of an item."""
    await asyncio.sleep(_PAUSE_S)
    with (Path(os.environ["SHOP_FOLDER"]) / "orders").open("a", encoding="utf-8") as orders:
        orders.write(f"{n} {item}\n")
    await asyncio.sleep(_PAUSE_S)
    return f"Ordered {n} {item}."


if __name__ == "__main__":
    server.run("stdio")
