"""Meshes with only those tool servers that a test asks."""

import json
from pathlib import Path

SHIPPED = frozenset({"math", "currency", "research"})


def only_servers(folder: Path, *servers: str) -> dict[str, str]:
    """Return what lets a mesh have only these: each is a process with libraries of its own."""
    left_out = {name: {"disabled": True} for name in sorted(SHIPPED - set(servers))}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": left_out}))
    return {"TRUNKLINE_MCP_FILE": str(file)}
