"""Messages and tools on a small mesh."""

import json
import sys
from pathlib import Path
from typing import Any

from harness.mcp.bundled_servers import only_servers
from harness.mcp.scripted_servers import RAW
from harness.mesh.identity import mesh_credentials
from harness.mesh.small_mesh import SmallMesh
from trunkline.core.settings import Settings
from trunkline.mesh.server import MeshServer
from trunkline.messages.client import MessagingClient
from trunkline.processes.messaging import add_messages
from trunkline.processes.tools import add_tool_adapter, load_mcp_config
from trunkline.v1 import registry_service_pb2

_SHOP = Path(__file__).parents[1] / "mcp" / "shop_server.py"


async def serve_messages(
    mesh: SmallMesh, folder: Path, *, with_shop: bool = False
) -> MessagingClient:
    """Add messages, and the tools of two servers, to a mesh; return a user's client."""
    settings = Settings(data_dir=folder)
    server = MeshServer(mesh_credentials())
    await mesh.enter(add_messages(server, settings, mesh.directory))
    if with_shop:
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
        config = load_mcp_config(settings, {})
        adapter = add_tool_adapter(server, config, settings, mesh.directory)
    (address,) = await server.start("127.0.0.1:0")
    await mesh.enter(_Stopping(server))
    if with_shop:
        await mesh.enter(adapter)
    host = registry_service_pb2.Host(
        host_id=f"messages@{address}", address=address, services=server.services
    )
    await mesh.register(host)
    return MessagingClient(mesh.directory, account="anonymous", caller="ann")


class _Stopping:
    """Stops a server at the end of a block."""

    def __init__(self, server: MeshServer) -> None:
        self._server = server

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)
