"""Messages between agents: their service, inside a mesh or as a separate process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from trunkline.core.encryption import open_if_encrypting
from trunkline.core.identity import open_credentials
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import Settings, advertised_address
from trunkline.errors import PeerError
from trunkline.mesh.client import ChannelPool, Directory, run_in_background
from trunkline.mesh.registry import Membership
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.policy import Policy
from trunkline.messages.broker import MessageBroker
from trunkline.messages.client import SERVICE
from trunkline.messages.dispatcher import Dispatcher
from trunkline.messages.leftover_store import open_leftover
from trunkline.messages.messaging_servicer import MessagingServicer
from trunkline.messages.middleware import Middleware, load_middleware
from trunkline.messages.modes import open_store
from trunkline.messages.store import MessageStore
from trunkline.messages.types import TYPES, load_type_plugins
from trunkline.observe.audit import open_audit_log
from trunkline.observe.signal_exports import export_signals
from trunkline.observe.traces import MeshTarget, configure_tracing
from trunkline.processes.database import open_database
from trunkline.processes.registry import STOP_GRACE_S
from trunkline.v1 import messaging_service_pb2_grpc, registry_service_pb2

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase

logger = logging.getLogger(__name__)

_REMOVAL_INTERVAL_S = 3600.0
_REGISTRY_TIMEOUT_S = 5.0


@asynccontextmanager
async def serve_messages(settings: Settings) -> AsyncIterator[ServiceStatus]:
    """Serve messages in this process, and nothing else.

    Raises:
        ConfigurationError: the address can't be listened on, or a setting is wrong.
        JournalUnavailableError: the local store can't be used.
    """
    advertised = advertised_address(settings.listen, settings.advertise, mesh=settings.mesh.first)
    async with AsyncExitStack() as stack:
        metrics = await stack.enter_async_context(export_signals(settings, "messages"))
        database = await stack.enter_async_context(open_database(settings))
        audit = await stack.enter_async_context(
            open_audit_log(settings, database, process="messages")
        )
        credentials = await stack.enter_async_context(open_credentials(settings))
        target = MeshTarget(settings.mesh.addresses, credentials)
        stack.callback(configure_tracing("messages", mesh=target).shutdown)
        channels = ChannelPool.from_settings(settings, credentials)
        await stack.enter_async_context(channels)
        server = MeshServer(credentials, policy=settings.policy, audit=audit)
        directory = await stack.enter_async_context(Directory(channels, *settings.mesh.addresses))
        # The mode of other processes is known then. Without the registry, nothing is.
        with suppress(TimeoutError):
            async with asyncio.timeout(_REGISTRY_TIMEOUT_S):
                await directory.wait_for_change(0)
        adding = add_messages(server, settings, directory, database)
        mode = await stack.enter_async_context(adding)
        (address,) = await server.start(str(settings.listen))
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        member = registry_service_pb2.Host(
            host_id=f"messages@{advertised.with_bound_port(address)}",
            address=advertised.with_bound_port(address),
            services=server.services,
            messaging_mode=mode,
        )
        membership = Membership(directory.registries, member)
        await stack.enter_async_context(membership)
        ready = {"service": "messages", "grpc": address, **metrics}
        yield ServiceStatus([ready], joined=membership.joined)


@asynccontextmanager
async def add_messages(
    server: MeshServer,
    settings: Settings,
    directory: Directory,
    database: "PostgresDatabase | None" = None,
) -> AsyncIterator[str]:
    """Add the messaging service to a server, and deliver messages in the block; yield the mode.

    The directory may be opened within the block.

    Raises:
        ConfigurationError: a setting is wrong, or Redis can't be reached in the distributed mode.
        JournalUnavailableError: the local store or the database can't be used.
    """
    load_type_plugins()
    table = settings.messaging
    middleware: Sequence[Middleware] = load_middleware(table.middleware)
    async with AsyncExitStack() as stack:
        path = settings.data_dir / PRIVATE_FOLDER / "messages.db"
        keyring = open_if_encrypting(settings)
        opening = open_store(
            table,
            path=path,
            keyring=keyring,
            database=database,
            mesh_mode=directory.messaging_mode(),
        )
        store = await stack.enter_async_context(opening)
        open_broker = partial(
            MessageBroker,
            directory=directory,
            types=TYPES,
            middleware=middleware,
            policy=Policy(settings.policy),
            retention_s=table.age_s,
        )
        broker = open_broker(store)
        dispatcher = Dispatcher(broker, directory, table, middleware=middleware)
        server.add_service(
            SERVICE,
            messaging_service_pb2_grpc.add_MessagingServiceServicer_to_server,
            MessagingServicer(broker, server.audit),
        )
        await stack.enter_async_context(run_in_background(dispatcher.run()))
        leftover = await stack.enter_async_context(
            open_leftover(store, path=path, queue_limit=table.queue_limit, keyring=keyring)
        )
        if leftover is not None:
            leftover_dispatcher = Dispatcher(
                open_broker(leftover), directory, table, middleware=middleware
            )
            await stack.enter_async_context(run_in_background(leftover_dispatcher.run()))
        await stack.enter_async_context(run_in_background(_remove_old_messages(store, table.age_s)))
        yield store.mode


async def _remove_old_messages(store: MessageStore, age_s: float) -> None:
    """Delete messages that are older than the retention, every hour."""
    while True:
        try:
            before = datetime.now(UTC).timestamp() - age_s
            if count := await store.remove_old(before=before):
                logger.info("messages.removed", extra={"count": count})
        except PeerError as error:
            logger.warning("messages.not_removed", extra={"problem": str(error)})
        await asyncio.sleep(_REMOVAL_INTERVAL_S)
