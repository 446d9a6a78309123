"""A mesh that issues certificates, and processes that join it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from trunkline.core.identity import (
    Identity,
    JoinRecords,
    MeshCredentials,
    RevocationList,
    Role,
)
from trunkline.core.identity.certificates import create_root
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.issuing import issue_member, load_authority
from trunkline.core.identity.joining import join
from trunkline.core.identity.tokens import create_token
from trunkline.core.small_files import FolderFiles
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.identity_servicer import IdentityServicer
from trunkline.mesh.server.join_server import serve_join
from trunkline.v1 import identity_service_pb2_grpc


class RunningMesh:
    """A registry that issues certificates, with an address for tokens."""

    def __init__(
        self,
        folder: IdentityFolder,
        address: str,
        join_address: str,
        credentials: MeshCredentials,
        records: JoinRecords,
    ) -> None:
        self.folder = folder
        self.records = records
        self.credentials = credentials
        self.address = address
        self.join_address = join_address

    async def make_token(self, *agents: str, uses: int = 1) -> str:
        """Return a token for these agents; without any, for a bridge."""
        authority = await asyncio.to_thread(load_authority, self.folder)
        return create_token(
            authority,
            Identity.for_agents(authority.mesh, agents)
            if agents
            else Identity(authority.mesh, Role.BRIDGE),
            mesh=self.address,
            join_addresses=[self.join_address],
            lifetime=timedelta(hours=1),
            uses=uses,
        )


def make_root(path: Path) -> IdentityFolder:
    """Return a folder with a root, and the certificate of a member."""
    folder = IdentityFolder(path)
    folder.create()
    roots, key = create_root()
    folder.write(folder.roots, roots)
    folder.write(folder.root_key, key)
    issue_member(folder)
    return folder


def credentials_in(folder: IdentityFolder) -> MeshCredentials:
    return MeshCredentials(
        certificate=folder.certificate,
        key=folder.certificate,
        roots=folder.roots,
        is_issued_by_mesh=True,
    )


@asynccontextmanager
async def run_mesh(path: Path) -> AsyncIterator[RunningMesh]:
    folder = await asyncio.to_thread(make_root, path)
    credentials = await asyncio.to_thread(credentials_in, folder)
    records = JoinRecords(FolderFiles(path.parent, path.name))
    servicer = IdentityServicer(folder, records)
    server = MeshServer(credentials)
    server.add_service(
        "trunkline.v1.IdentityService",
        identity_service_pb2_grpc.add_IdentityServiceServicer_to_server,
        servicer,
    )
    revocations = RevocationList(records, credentials.revoke)
    async with RegistryServicer(list_revoked=revocations.refresh, lease_s=4.0) as registry:
        server.add_registry(registry)
        (address,) = await server.start("127.0.0.1:0")
        try:
            async with serve_join(servicer, credentials, "127.0.0.1:0") as join_address:
                yield RunningMesh(folder, address, join_address, credentials, records)
        finally:
            await server.stop(0)


async def join_as(mesh: RunningMesh, path: Path, *agents: str) -> IdentityFolder:
    """Return the folder of a process that joined with these agents; without any, as a bridge."""
    folder = IdentityFolder(path)
    await asyncio.to_thread(join, folder, await mesh.make_token(*agents))
    return folder
