"""An MCP server whose tools declare no patterns, over stdio, or HTTP on the port of an argument.

Orders are lines of the file `orders` in SHOP_FOLDER.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

server = MCPServer("plain")
_READS = ToolAnnotations(read_only_hint=True)
Unit = Literal["metres", "feet", "miles"]


@server.tool(title="Convert a length", annotations=_READS)
async def convert_length(
    value: Annotated[float, Field(description="The length.")],
    from_unit: Annotated[Unit, Field(description="The unit of the value.")],
    to_unit: Annotated[Unit, Field(description="The unit of the result.")],
) -> str:
    """Convert a length from one unit to another."""
    return f"{value:g} {from_unit} in {to_unit}"


@server.tool(title="Count words", annotations=_READS)
async def count_words(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words"


@server.tool(title="Order", annotations=ToolAnnotations(destructive_hint=True))
async def order(count: int, item: str) -> dict[str, int | str]:
    """Order a number of an item."""
    with (Path(os.environ["SHOP_FOLDER"]) / "orders").open("a", encoding="utf-8") as orders:
        orders.write(f"{count} {item}\n")
    return {"count": count, "item": item}


@server.tool(title="Refuse", annotations=_READS)
async def refuse() -> str:
    """Refuse to do anything."""
    raise ToolError("not today")


@server.tool(title="Repeat a number", annotations=_READS)
async def big_number(number: int) -> str:
    """Repeat a number exactly."""
    return str(number)


@server.tool(title="Wait", annotations=_READS)
async def wait() -> str:
    """Wait until the call is canceled."""
    await asyncio.Event().wait()
    raise AssertionError


@server.tool(title="Draw", annotations=_READS)
async def draw() -> Image:
    """Draw a picture."""
    return Image(data=b"a picture", format="png")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
