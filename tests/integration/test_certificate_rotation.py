"""A new certificate is used for new connections, and open streams stay as they are."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from cryptography import x509

from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import issue
from trunkline.client import ChannelPool, RegistryClient
from trunkline.identity import MeshCredentials, Role
from trunkline.registry import RegistryServicer
from trunkline.server import MeshServer
from trunkline.v1 import registry_service_pb2

LIMIT_S = 120


class Watcher:
    """A stream that counts the hosts of a registry."""

    def __init__(self, channels: ChannelPool, address: str) -> None:
        self._client = RegistryClient(channels.get(address))
        self.hosts = 0
        self.changed = asyncio.Event()

    async def run(self) -> None:
        async for update in self._client.watch_agents():
            self.hosts = len(update.hosts)
            self.changed.set()
        raise AssertionError("the stream has ended")

    async def wait_for(self, hosts: int) -> None:
        while self.hosts != hosts:
            self.changed.clear()
            await self.changed.wait()


async def renew(folder: Path, credentials: MeshCredentials) -> None:
    """Replace a certificate, and wait until it is used."""
    generation = credentials.generation
    await asyncio.to_thread(issue, folder, role=Role.MEMBER)
    async with asyncio.timeout(LIMIT_S):
        while credentials.generation == generation:  # noqa: ASYNC110  files have no event
            await asyncio.sleep(0.05)


async def served_serial(address: str, credentials_file: Path) -> int:
    """Return the serial number of the certificate that a server shows."""
    context = ssl.create_default_context(cafile=str(mesh_credentials().roots_file))
    context.check_hostname = False
    context.load_cert_chain(credentials_file)
    context.set_alpn_protocols(["h2"])
    name, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(name, int(port), ssl=context)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True)
    writer.transport.abort()
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


@pytest.fixture
async def registry() -> AsyncIterator[RegistryServicer]:
    async with RegistryServicer(lease_s=3600) as registry:
        yield registry


async def test_certificates_rotate_under_a_hundred_streams_and_drop_none(
    tmp_path: Path, registry: RegistryServicer
) -> None:
    rotations, streams_per_rotation = 4, 25
    credentials = await asyncio.to_thread(issue, tmp_path / "node", role=Role.MEMBER)
    server = MeshServer(credentials)
    server.add_registry(registry)
    (address,) = await server.start("127.0.0.1:0")
    hosts = itertools.count(1)
    watchers: list[Watcher] = []
    serials: set[int] = set()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, 0)
        channels = await stack.enter_async_context(ChannelPool(credentials))
        await stack.enter_async_context(asyncio.timeout(LIMIT_S))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks: list[asyncio.Task[None]] = []
        for _ in range(rotations):
            for _ in range(streams_per_rotation):
                watchers.append(Watcher(channels, address))
                tasks.append(group.create_task(watchers[-1].run()))
            number = next(hosts)
            host = registry_service_pb2.Host(host_id=f"h-{number}", address=f"127.0.0.1:{number}")
            await RegistryClient(channels.get(address)).register(host)
            for watcher in watchers:
                await watcher.wait_for(number)
            serials.add(await served_serial(address, tmp_path / "node" / "certificate.pem"))
            await renew(tmp_path / "node", credentials)
        assert len(watchers) == rotations * streams_per_rotation
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
    assert len(serials) == rotations


async def test_a_file_that_can_not_be_used_leaves_the_certificate_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = await asyncio.to_thread(issue, tmp_path, role=Role.MEMBER)
    await asyncio.to_thread((tmp_path / "certificate.pem").write_text, "half a file")
    async with asyncio.timeout(LIMIT_S):
        while not any(record.message == "identity.files_not_usable" for record in caplog.records):
            assert credentials.generation == 1
            await asyncio.sleep(0.05)
    credentials.channel_credentials()
    await renew(tmp_path, credentials)
    assert credentials.generation == 2
