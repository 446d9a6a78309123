"""The messaging service of a small mesh, and the agents and clients of its tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import free_address
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh, open_small_mesh
from trunkline import TaskContext, agent
from trunkline.core.settings import MessagingSettings, PolicySettings, Settings
from trunkline.mesh.registry import Membership
from trunkline.mesh.server import MeshServer
from trunkline.messages.client import MessagingClient
from trunkline.messages.store import EnvelopeFilter, StoredEnvelope
from trunkline.observe.audit import AuditLog
from trunkline.processes.database import open_database
from trunkline.processes.messaging import add_messages
from trunkline.tasks.messages import MeshMessage
from trunkline.v1 import envelope_pb2, registry_service_pb2

ENDED = frozenset(
    {
        envelope_pb2.DELIVERY_STATE_HANDLED,
        envelope_pb2.DELIVERY_STATE_DEAD,
        envelope_pb2.DELIVERY_STATE_EXPIRED,
        envelope_pb2.DELIVERY_STATE_CANCELED,
    }
)

Place: TypeAlias = dict[str, Any]
"""A place where messages are stored, as settings of `[messaging]`."""


@agent(name="plain", description="Has no handlers.")
async def plain(task: TaskContext) -> str:
    return f"plain heard {task.text!r}"


class MessageMesh:
    """A small mesh with a messaging service, and the calls of a test to it."""

    def __init__(self, mesh: SmallMesh) -> None:
        self.mesh = mesh

    def client(self, **options: str) -> MessagingClient:
        """Return a client for a user, or for an agent."""
        return MessagingClient(self.mesh.directory, **options)

    async def until(
        self,
        predicate: Callable[[StoredEnvelope], bool],
        *,
        account: str = "",
        **conditions: Any,
    ) -> StoredEnvelope:
        """Wait until a message that fulfils conditions also fulfils the predicate; return it."""
        query = EnvelopeFilter(**conditions)
        watch = self.client(account=account).watch(query, after_position=0, with_deliveries=True)
        async with asyncio.timeout(PATIENCE_S), aclosing(watch) as updates:
            async for update in updates:
                for stored in update.envelopes:
                    if predicate(stored):
                        return stored
        raise AssertionError("the watch ended")

    async def ended(self, envelope_id: str, *, account: str = "") -> StoredEnvelope:
        """Wait until all deliveries of a message have ended."""
        return await self.until(
            lambda stored: all(delivery.state in ENDED for delivery in stored.deliveries),
            account=account,
            envelope_id=envelope_id,
        )

    async def listing(self, *, account: str = "", **conditions: Any) -> list[StoredEnvelope]:
        """Return the messages that match, oldest first."""
        page = await self.client(account=account).read_page(EnvelopeFilter(**conditions))
        return list(page.envelopes)[::-1]


@asynccontextmanager
async def serve_messages_on(
    mesh: SmallMesh,
    folder: Path,
    *,
    policy: PolicySettings | None = None,
    audit: AuditLog | None = None,
    store: str = "",
    **table: Any,
) -> AsyncIterator[None]:
    """Serve messages on a mesh for the block. A later block continues with the same store."""
    settings = Settings(
        data_dir=folder,
        store=store,
        policy=policy or PolicySettings(),
        messaging=MessagingSettings(**{"backoff_s": 0.01, "max_backoff_s": 0.1, **table}),
    )
    server = MeshServer(mesh_credentials(), policy=settings.policy, audit=audit)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings))
        adding = add_messages(server, settings, mesh.directory, database)
        mode = await stack.enter_async_context(adding)
        (address,) = await server.start(free_address())
        stack.push_async_callback(server.stop, 0)
        member = registry_service_pb2.Host(
            host_id=f"messages@{address}",
            address=address,
            services=server.services,
            messaging_mode=mode,
        )
        await stack.enter_async_context(Membership([mesh.registry], member))
        await mesh.directory.wait_until(
            lambda known: any(host.host_id == member.host_id for host in known.hosts),
            timeout_s=PATIENCE_S,
        )
        yield


async def join_messages(mesh: SmallMesh, **table: Any) -> MessagingClient:
    """Serve messages for the life of a mesh; return a client of the anonymous user `ann`."""
    await mesh.enter(serve_messages_on(mesh, mesh.folder / "messages", **table))
    return MessagingClient(mesh.directory, account="anonymous", caller="ann")


@asynccontextmanager
async def open_message_mesh(
    folder: Path, *agents: Any, audit: AuditLog | None = None, **options: Any
) -> AsyncIterator[MessageMesh]:
    """Open a mesh with agents and a messaging service; the options are of `[messaging]`."""
    async with open_small_mesh(folder, audit=audit) as mesh:
        await mesh.enter(serve_messages_on(mesh, folder, audit=audit, **options))
        if agents:
            await mesh.join(*agents)
        yield MessageMesh(mesh)


def texts(messages: Sequence[StoredEnvelope]) -> list[str]:
    """Return the texts of messages."""
    return [stored.envelope.text for stored in messages]


class Attempts:
    """An agent that fails a given number of times for each text, and notes what it handled."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.handled: list[str] = []
        self.failures: dict[str, int] = {}
        self.has_begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

        @agent(name="worker", description="Works.", concurrency=4)
        async def worker(task: TaskContext) -> None:
            raise AssertionError

        @worker.on("job")
        async def job(task: TaskContext, message: MeshMessage) -> str:
            text = str(message.payload)
            self.begun.append(text)
            self.has_begun.set()
            await self.gate.wait()
            if self.failures.get(text, 0) > 0:
                self.failures[text] -= 1
                raise ValueError(text)
            self.handled.append(text)
            return f"did {text}"

        self.agent = worker
