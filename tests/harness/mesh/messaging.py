"""The messaging service as a host of a small mesh."""

from typing import Any

from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import free_address
from harness.mesh.small_mesh import SmallMesh
from trunkline.core.settings import MessagingSettings, Settings
from trunkline.mesh.server import MeshServer
from trunkline.processes.messaging import add_messages
from trunkline.v1 import registry_service_pb2


async def join_messages(mesh: SmallMesh, **settings: Any) -> None:
    """Add the messaging service to a mesh; return when the mesh lists it."""
    server = MeshServer(mesh_credentials())
    table = MessagingSettings(**{"mode": "local", "backoff_s": 0.05, **settings})
    folder = mesh.folder / "messages"
    await mesh.enter(
        add_messages(server, Settings(data_dir=folder, messaging=table), mesh.directory)
    )
    (address,) = await server.start(free_address())
    mesh.on_close(server.stop, 0)
    member = registry_service_pb2.Host(
        host_id=f"messages@{address}", address=address, services=server.services
    )
    await mesh.register(member)
