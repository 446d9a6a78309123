"""Meshes with only the tool servers that a test needs: each costs time to start."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SHIPPED = frozenset({"math", "currency", "research"})


def only_servers(
    folder: Path, *servers: str, own: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, str]:
    """Return environment variables for a mesh with only these shipped servers, and `own` ones."""
    entries: dict[str, Mapping[str, Any]] = {
        name: {"disabled": True} for name in sorted(SHIPPED - set(servers))
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries | dict(own or {})}))
    return {"TRUNKLINE_MCP_FILE": str(file)}
