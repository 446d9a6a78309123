"""An MCP server over stdio, of any kind: it knows nothing of Trunkline but two hints."""

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("stock", log_level="WARNING")
STOCK = {"apples": 5, "pears": 0}
# By this pattern the built-in model calls the tool without a provider's key.
COUNT_MATCH = [
    {"pattern": r"how many (?P<item>\w+)", "arguments": {"item": "{item}"}, "answer": "{result}"}
]


@server.tool(
    annotations=ToolAnnotations(read_only_hint=True), meta={"trunkline/match": COUNT_MATCH}
)
def count(item: str) -> int:
    """Count an item in stock."""
    return STOCK.get(item, 0)


# A tool that is not read-only waits for a person's approval.
@server.tool()
def take(item: str, number: int) -> str:
    """Take some of an item out of the stock."""
    if number > STOCK.get(item, 0):
        raise ValueError(f"only {STOCK.get(item, 0)} {item} are in stock")
    STOCK[item] -= number
    return f"{STOCK[item]} {item} are left."


if __name__ == "__main__":
    server.run("stdio")
