"""Meshes with only the tool servers that a test needs."""

import json
from pathlib import Path

SHIPPED = frozenset({"math", "currency", "research"})


def only_servers(folder: Path, *servers: str) -> dict[str, str]:
    """Return environment variables for a mesh with only these servers: each takes a process."""
    left_out = {name: {"disabled": True} for name in sorted(SHIPPED - set(servers))}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": left_out}))
    return {"TRUNKLINE_MCP_FILE": str(file)}
