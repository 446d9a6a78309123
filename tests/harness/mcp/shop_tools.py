"""The tools of a shop on a small mesh, beside a server whose tools are partly of no use."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from harness.mcp.bundled_servers import only_servers
from harness.mcp.scripted_servers import RAW
from harness.mesh.identity import mesh_credentials
from harness.mesh.small_mesh import SmallMesh
from trunkline.core.settings import Settings
from trunkline.mesh.server import MeshServer
from trunkline.processes.tools import add_tool_adapter, load_mcp_config

_SHOP: Final = Path(__file__).with_name("shop_server.py")


async def join_shop_tools(mesh: SmallMesh, folder: Path) -> None:
    """Add a tool adapter with two servers to a mesh; return when the mesh lists it."""
    shop: dict[str, Any] = {
        "command": sys.executable,
        "args": [str(_SHOP)],
        "env": {"SHOP_FOLDER": str(folder)},
    }
    # Of its two tools, one can't be used.
    pages = [[{"name": "good", "inputSchema": {}}, {"name": "bad", "inputSchema": None}]]
    careless = {"command": sys.executable, "args": [RAW, json.dumps({"pages": pages})]}
    own = {"shop": shop, "careless": careless}
    file = Path(only_servers(folder, own=own)["TRUNKLINE_MCP_FILE"])
    settings = Settings(data_dir=folder, mcp_file=file)
    server = MeshServer(mesh_credentials())
    config = load_mcp_config(settings, {})
    await mesh.enter(add_tool_adapter(server, config, settings, mesh.directory))
    await mesh.serve(server, "tools")
