"""Chooses the store of messages, once at the start: a file, the database, or Redis."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.core.encryption import Keyring
from trunkline.core.settings import MessagingSettings
from trunkline.errors import ConfigurationError, PeerUnavailableError
from trunkline.messages.redis_connection import PEER
from trunkline.messages.redis_store import RedisMessageStore
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import MessageStore

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 5.0
"""In the mode `auto`, the server has to answer within this time."""


@asynccontextmanager
async def open_store(
    table: MessagingSettings,
    *,
    path: Path,
    keyring: Keyring | None,
    database: "PostgresDatabase | None" = None,
    mesh_mode: str = "",
) -> AsyncIterator[MessageStore]:
    """Open the store that the settings choose. The choice is logged, and lasts while it is open.

    `auto` without Redis is the database, if there is one. `mesh_mode` is the mode of the mesh's
    other processes, if it is known. If they are distributed, `auto` chooses no other mode, which
    would split conversations.

    Raises:
        ConfigurationError: the distributed mode has no URL, or its server does not answer.
        JournalUnavailableError: the file of the local mode, or the database, can't be used.
    """
    async with AsyncExitStack() as stack:
        if table.mode == "local" or (table.mode == "auto" and not table.url):
            reason = "it is set" if table.mode == "local" else "messaging.url is not set"
            if table.mode == "auto" and database is not None:
                yield await _open_database(stack, table, database, reason)
            else:
                yield await _open_local(stack, table, path, keyring, reason)
            return
        if not table.url:
            problem = "is not set, and the mode is `distributed`; give the address of Redis"
            raise ConfigurationError("messaging.url", problem)
        try:
            store = await _open_distributed(stack, table, keyring)
        except PeerUnavailableError as error:
            if table.mode == "distributed":
                raise ConfigurationError("messaging.url", f"is no use: {error.problem}") from None
            if mesh_mode == "distributed":
                problem = (
                    f"{error.problem}, and other processes of this mesh use Redis; start again"
                )
                raise ConfigurationError("messaging.url", f"is no use: {problem}") from None
            if database is not None:
                yield await _open_database(stack, table, database, str(error))
            else:
                yield await _open_local(stack, table, path, keyring, str(error))
            return
        logger.info("messages.mode", extra={"mode": store.mode, "configured": table.mode})
        yield store


async def _open_local(
    stack: AsyncExitStack,
    table: MessagingSettings,
    path: Path,
    keyring: Keyring | None,
    reason: str,
) -> MessageStore:
    store = SqliteMessageStore(path, queue_limit=table.queue_limit, keyring=keyring)
    await stack.enter_async_context(store)
    _log_mode(store, table, {"reason": reason, "file": str(path)})
    return store


async def _open_database(
    stack: AsyncExitStack, table: MessagingSettings, database: "PostgresDatabase", reason: str
) -> MessageStore:
    from trunkline.messages.postgres_store import PostgresMessageStore

    store = await stack.enter_async_context(PostgresMessageStore.open(database, table))
    _log_mode(store, table, {"reason": reason, "database": database.name})
    return store


def _log_mode(store: MessageStore, table: MessagingSettings, extra: Mapping[str, str]) -> None:
    # A warning if Redis was wanted: other processes of the mesh may use it.
    level = logging.WARNING if table.mode == "auto" and table.url else logging.INFO
    extra = {"mode": store.mode, "configured": table.mode, **extra}
    logger.log(level, "messages.mode", extra=extra)


async def _open_distributed(
    stack: AsyncExitStack, table: MessagingSettings, keyring: Keyring | None
) -> MessageStore:
    opening = RedisMessageStore.open(table, keyring=keyring)
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await stack.enter_async_context(opening)
    except TimeoutError:
        raise PeerUnavailableError(PEER, f"it did not answer within {_ANSWER_S:g} s") from None
