"""Processes of other users join by a token, and renew their certificates at the mesh."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from harness.a2a.sse_client import PATIENCE_S
from harness.mesh.issuing_mesh import RunningMesh, credentials_in, join_as, make_root, run_mesh
from harness.polling import poll
from trunkline.core.identity import Role
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.issuing import load_authority
from trunkline.core.identity.joining import join, renew
from trunkline.core.identity.rotation import advance_rotation, start_rotation
from trunkline.core.identity.tokens import verify_token
from trunkline.errors import (
    ConfigurationError,
    PeerUnavailableError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from trunkline.mesh.client import ChannelPool, RegistryClient
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.v1 import registry_service_pb2


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[RunningMesh]:
    async with run_mesh(tmp_path / "mesh") as mesh:
        yield mesh


async def test_a_process_joins_by_a_token_and_renews_its_certificate(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    folder = await join_as(mesh, tmp_path / "math", "math")
    assert not folder.has_root
    credentials = await asyncio.to_thread(credentials_in, folder)
    assert credentials.identity.role is Role.AGENTS
    assert credentials.identity.agents == {"math"}
    async with ChannelPool(credentials) as channels:
        registry = RegistryClient(channels.get(mesh.address))
        assert await registry.list_agents() == []
        former = folder.certificate.read_bytes()
        await asyncio.to_thread(renew, folder, credentials, [mesh.address])
        assert folder.certificate.read_bytes() != former
    renewed = await asyncio.to_thread(credentials_in, folder)
    assert renewed.identity == credentials.identity
    async with ChannelPool(renewed) as channels:
        assert await RegistryClient(channels.get(mesh.address)).list_agents() == []


async def test_a_token_is_used_up(mesh: RunningMesh, tmp_path: Path) -> None:
    token = await mesh.make_token("math")
    await asyncio.to_thread(join, IdentityFolder(tmp_path / "first"), token)
    second = IdentityFolder(tmp_path / "second")
    with pytest.raises(UnauthenticatedError, match="refuses the token"):
        await asyncio.to_thread(join, second, token)
    assert not second.has_identity


async def test_a_token_of_another_mesh_is_refused(mesh: RunningMesh, tmp_path: Path) -> None:
    async with run_mesh(tmp_path / "other") as other:
        foreign = RunningMesh(
            other.folder, mesh.address, mesh.join_address, other.credentials, other.records
        )
        token = await foreign.make_token("math")
        # Its holder trusts the other mesh, so it does not even send the token to this one.
        with pytest.raises(PeerUnavailableError):
            await asyncio.to_thread(join, IdentityFolder(tmp_path / "math"), token)


async def test_a_process_that_joined_can_not_pass_for_the_registry(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    evil = await join_as(mesh, tmp_path / "evil", "evil")
    victim = await join_as(mesh, tmp_path / "math", "math")
    async with RegistryServicer() as registry:
        server = MeshServer(await asyncio.to_thread(credentials_in, evil))
        server.add_registry(registry)
        (address,) = await server.start("127.0.0.1:0")
        credentials = await asyncio.to_thread(credentials_in, victim)
        async with ChannelPool(credentials) as channels:
            with pytest.raises(PeerUnavailableError, match="another process of the mesh"):
                await RegistryClient(channels.get(address)).list_agents()
        with pytest.raises((UnauthenticatedError, PeerUnavailableError)):
            await asyncio.to_thread(renew, victim, credentials, [address])
        await server.stop(0)


async def test_clients_call_a_host_only_if_it_registered_the_address(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    evil = await asyncio.to_thread(credentials_in, await join_as(mesh, tmp_path / "evil", "evil"))
    math = await asyncio.to_thread(credentials_in, await join_as(mesh, tmp_path / "math", "math"))
    own = await asyncio.to_thread(credentials_in, mesh.folder)
    async with RegistryServicer() as registry:
        server = MeshServer(evil)
        server.add_registry(registry)
        (address,) = await server.start("127.0.0.1:0")
        for owner, is_accepted in ((math, False), (evil, True)):
            host = registry_service_pb2.Host(address=address, identity=str(owner.identity))
            async with ChannelPool(own) as channels:
                channels.expect([host], registry_addresses=[mesh.address])
                client = RegistryClient(channels.get(address))
                if is_accepted:
                    # It lets members call, and serves its registry.
                    assert await client.list_agents() == []
                else:
                    with pytest.raises(PeerUnavailableError):
                        await client.list_agents()
        await server.stop(0)


async def test_a_process_that_starts_before_it_joins_accepts_the_mesh_once_it_has_joined(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    # As on a machine where the mesh's address is one of its own.
    folder = await asyncio.to_thread(make_root, tmp_path / "early")
    early = await asyncio.to_thread(credentials_in, folder)
    async with RegistryServicer() as registry:
        server = MeshServer(early)
        server.add_registry(registry)
        (address,) = await server.start("127.0.0.1:0")
        await asyncio.to_thread(join, folder, await mesh.make_token("math"))
        await poll(
            lambda: asyncio.to_thread(lambda: (early.generation, early.identity)[1]),
            lambda identity: identity.mesh == mesh.credentials.identity.mesh,
        )
        host = registry_service_pb2.Host(address=address, identity=str(early.identity))
        async with ChannelPool(mesh.credentials) as channels:
            channels.expect([host], registry_addresses=[mesh.address])
            assert await RegistryClient(channels.get(address)).list_agents() == []
        await server.stop(0)


async def test_a_token_for_more_agents_still_owns_the_journals(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    host = registry_service_pb2.Host(
        host_id="journal-1", address="127.0.0.1:7001", journal_ids=["journal-1"]
    )
    for name, agents, is_owner in (
        ("math", ["math"], True),
        ("evil", ["evil"], False),
        ("both", ["currency", "math"], True),
    ):
        folder = await join_as(mesh, tmp_path / name, *agents)
        async with ChannelPool(await asyncio.to_thread(credentials_in, folder)) as channels:
            registry = RegistryClient(channels.get(mesh.address))
            if is_owner:
                await registry.register(host)
            else:
                with pytest.raises(PermissionDeniedError, match=r"agents/evil/-/\w+ may not"):
                    await registry.register(host)


async def test_a_process_that_is_revoked_can_neither_call_nor_renew(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    folder = await join_as(mesh, tmp_path / "math", "math")
    credentials = await asyncio.to_thread(credentials_in, folder)
    host = registry_service_pb2.Host(host_id="math", address="127.0.0.1:7001")
    async with ChannelPool(credentials) as channels:
        registry = RegistryClient(channels.get(mesh.address))
        await registry.register(host)
        async with aclosing(registry.watch_agents()) as updates:
            assert [live.host_id for live in (await anext(updates)).hosts] == ["math"]
            (revoked,) = await mesh.records.revoke(["agents/math"])
            # The registry ends the watch when it reads the list.
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(UnauthenticatedError, match="revoked"):
                    async for _ in updates:
                        pass
        with pytest.raises(UnauthenticatedError, match="revoked"):
            await registry.list_agents()
        with pytest.raises(UnauthenticatedError):
            await asyncio.to_thread(renew, folder, credentials, [mesh.address])
    assert revoked.instance == credentials.identity.instance
    again = await join_as(mesh, tmp_path / "again", "math")
    async with ChannelPool(await asyncio.to_thread(credentials_in, again)) as channels:
        # Its host is gone, and the next process with the same agents is accepted.
        assert await RegistryClient(channels.get(mesh.address)).list_agents() == []


async def test_a_revoked_token_lets_nobody_join(mesh: RunningMesh, tmp_path: Path) -> None:
    token = await mesh.make_token("math", uses=5)
    authority = await asyncio.to_thread(load_authority, mesh.folder)
    await mesh.records.revoke_token(verify_token(authority, token))
    with pytest.raises(UnauthenticatedError):
        await asyncio.to_thread(join, IdentityFolder(tmp_path / "math"), token)


async def test_the_root_is_replaced_while_processes_run_and_no_stream_ends(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    """Each phase begins when its time is set to now, as the mesh's processes do it."""
    folder = await join_as(mesh, tmp_path / "math", "math")
    former = (mesh.folder.roots.read_bytes(), folder.certificate.read_bytes())
    credentials = await asyncio.to_thread(credentials_in, folder)
    waiting_token = await mesh.make_token("late")
    async with ChannelPool(credentials, ping_s=PATIENCE_S) as channels:
        registry = RegistryClient(channels.get(mesh.address))
        async with aclosing(registry.watch_agents()) as updates:
            await anext(updates)
            for phase, roots in (("announced", 2), ("replaced", 2), ("dropped", 1)):
                await asyncio.to_thread(_enter, phase, mesh.folder)
                mesh.credentials.refresh()
                await asyncio.to_thread(renew, folder, credentials, [mesh.address])
                credentials.refresh()
                assert len(x509.load_pem_x509_certificates(folder.roots.read_bytes())) == roots
                assert folder.roots.read_bytes() == mesh.folder.roots.read_bytes()
                # New connections use what is in the folder now.
                renewed = await asyncio.to_thread(credentials_in, folder)
                assert renewed.identity == credentials.identity
                async with ChannelPool(renewed) as fresh:
                    await RegistryClient(fresh.get(mesh.address)).list_agents()
                if phase == "replaced":
                    # A token of the former root is still good, if its holder knows both.
                    await join_as(mesh, tmp_path / "new", "new")
            # The stream is the one from before.
            host = registry_service_pb2.Host(host_id="math", address="127.0.0.1:7001")
            async with ChannelPool(renewed) as fresh:
                await RegistryClient(fresh.get(mesh.address)).register(host)
            assert [live.host_id for live in (await anext(updates)).hosts] == ["math"]
    # Nothing of the former root is accepted any more.
    assert not mesh.folder.rotation.exists()
    outdated = IdentityFolder(tmp_path / "outdated")
    outdated.create()
    outdated.write(outdated.roots, former[0])
    outdated.write(outdated.certificate, former[1])
    async with ChannelPool(await asyncio.to_thread(credentials_in, outdated)) as channels:
        with pytest.raises(PeerUnavailableError):
            await RegistryClient(channels.get(mesh.address)).list_agents()
    with pytest.raises((UnauthenticatedError, PeerUnavailableError)):
        await asyncio.to_thread(join, IdentityFolder(tmp_path / "late"), waiting_token)


def _enter(phase: str, folder: IdentityFolder) -> None:
    if phase == "announced":
        start_rotation(folder)
        with pytest.raises(ConfigurationError, match="is being replaced until"):
            start_rotation(folder)
    else:
        now = datetime.now(UTC).timestamp()
        times = {"switch_at": now, "drop_at": now + 3600 * (phase == "replaced")}
        folder.write(folder.rotation, json.dumps(times).encode())
    advance_rotation(folder)


async def test_strangers_hold_a_limited_number_of_connections(mesh: RunningMesh) -> None:
    host, _, port = mesh.join_address.rpartition(":")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
        # They say nothing. The server sends nothing either, and closes those over its limit.
        reads = [group.create_task(reader.read()) for reader, _ in strangers]
        while sum(read.done() for read in reads) < 300 - 256:
            await asyncio.wait(
                [read for read in reads if not read.done()], return_when=asyncio.FIRST_COMPLETED
            )
        assert {read.result() for read in reads if read.done()} == {b""}
        for _, writer in strangers:
            writer.close()
        for read in reads:
            read.cancel()
