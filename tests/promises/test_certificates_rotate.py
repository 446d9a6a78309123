"""Promise: certificates that change under open streams drop none of them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from cryptography import x509

from harness.agents.inline_agents import NOTHING, define, message
from harness.mesh.issuing_mesh import RunningMesh, credentials_in, join_as, run_mesh
from harness.promise_scale import PromiseScale
from trunkline.core.identity import MeshCredentials
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.joining import renew
from trunkline.core.settings import Settings
from trunkline.mesh.client import ChannelPool, Directory, RegistryClient
from trunkline.mesh.registry import Membership
from trunkline.mesh.server import MeshServer
from trunkline.processes.hosting import add_host_services, describe_host, open_host
from trunkline.processes.journals import HostJournals
from trunkline.tasks.context import TaskContext
from trunkline.v1 import snapshot_pb2

LIMIT_S = 300.0
PARALLEL_STREAMS = 100


class Counter:
    """A number that increases, and those who wait for it."""

    def __init__(self) -> None:
        self.value = 0
        self._changed = asyncio.Event()

    def increase(self) -> None:
        self.value += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_for(self, value: int) -> None:
        while self.value < value:
            await self._changed.wait()


class Process:
    """A process that joined by a token, with its channels and its view of the mesh."""

    def __init__(self, folder: IdentityFolder, credentials: MeshCredentials, mesh: str) -> None:
        self.credentials = credentials
        self.channels = ChannelPool(credentials, ping_s=LIMIT_S)
        self.directory = Directory(self.channels, mesh)
        self._folder = folder
        self._mesh = mesh

    async def rotate(self) -> None:
        """Renew the certificate at the mesh, and use it."""
        await asyncio.to_thread(renew, self._folder, self.credentials, self._mesh)
        self.credentials.refresh()

    async def served_serial(self, address: str) -> int:
        """Return the serial number of the certificate that a server shows."""
        context = ssl.create_default_context(cafile=str(self._folder.roots))
        context.check_hostname = False
        context.load_cert_chain(self._folder.certificate)
        context.set_alpn_protocols(["h2"])
        name, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(name, int(port), ssl=context)
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True)
        writer.transport.abort()
        assert certificate is not None
        return x509.load_der_x509_certificate(certificate).serial_number


@asynccontextmanager
async def join_process(mesh: RunningMesh, path: Path, *agents: str) -> AsyncIterator[Process]:
    folder = await join_as(mesh, path, *agents)
    process = Process(folder, await asyncio.to_thread(credentials_in, folder), mesh.address)
    async with process.channels, process.directory:
        yield process


async def read(process: Process, task_id: str, seen: Counter) -> None:
    """Read a stream of one connection; it fails if the connection breaks."""
    client = process.directory.client_for_task(task_id)
    async with client.watch_task(task_id, account="") as stream:
        async for batches in stream:
            for _ in batches:
                seen.increase()


async def test_certificates_rotate_under_a_hundred_streams(
    tmp_path: Path, scale: PromiseScale
) -> None:
    rotations = scale.pick(ci=2, prove=20)
    ticks = Counter()

    async def run(task: TaskContext) -> None:
        artifact = task.artifact("ticks")
        for number in range(ticks.value + 1, rotations + 2):
            await ticks.wait_for(number)
            await artifact.append(f"{number} ")
        await artifact.close()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT_S))
        mesh = await stack.enter_async_context(run_mesh(tmp_path / "mesh"))
        serving, calling = [
            await stack.enter_async_context(join_process(mesh, tmp_path / name, *agents))
            for name, agents in (("serving", ["tested"]), ("calling", []))
        ]
        settings = Settings(data_dir=tmp_path)
        host = await stack.enter_async_context(
            open_host(
                [define(run)],
                directory=serving.directory,
                settings=settings,
                journals=HostJournals(settings, None),
            )
        )
        server = MeshServer(serving.credentials)
        add_host_services(server, host)
        (address,) = await server.start("127.0.0.1:0")
        stack.push_async_callback(server.stop, 0)
        registry = RegistryClient(serving.channels.get(mesh.address))
        await stack.enter_async_context(
            Membership([registry], describe_host(host, address=address))
        )
        await calling.directory.wait_until(lambda known: bool(known.hosts), timeout_s=LIMIT_S)
        serials = {await calling.served_serial(address)}
        seen = [Counter() for _ in range(PARALLEL_STREAMS)]
        async with asyncio.TaskGroup() as group:
            for rotation in range(rotations):
                # Each connection has streams that outlive its certificate.
                for counter in seen[rotation::rotations]:
                    client = calling.directory.client_for_agent("tested")
                    begun = await client.send_message(
                        agent="tested",
                        message=message(message_id=f"m-{id(counter)}"),
                        submission=NOTHING,
                        return_immediately=True,
                    )
                    assert isinstance(begun, snapshot_pb2.TaskSnapshot)
                    group.create_task(read(calling, begun.task.id, counter))
                await serving.rotate()
                await calling.rotate()
                serials.add(await calling.served_serial(address))
                before = [counter.value for counter in seen]
                ticks.increase()
                for number in range(PARALLEL_STREAMS):
                    if number % rotations <= rotation:
                        await seen[number].wait_for(before[number] + 1)
            ticks.increase()
        generations = (serving.credentials.generation, calling.credentials.generation)
        assert generations == (rotations + 1, rotations + 1)
        assert len(serials) == rotations + 1
    scale.report(streams=PARALLEL_STREAMS, rotations=rotations)
