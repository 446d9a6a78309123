"""Chooses the store of messages, once at the start: local, distributed, or auto."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from trunkline.core.encryption import Keyring
from trunkline.core.settings import MessagingSettings
from trunkline.errors import ConfigurationError, PeerUnavailableError
from trunkline.messages.redis_connection import PEER
from trunkline.messages.redis_store import RedisMessageStore
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import MessageStore

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 5.0
"""In the mode `auto`, the server has to answer within this time."""


@asynccontextmanager
async def open_store(
    table: MessagingSettings, *, path: Path, keyring: Keyring | None, mesh_mode: str = ""
) -> AsyncIterator[MessageStore]:
    """Open the store that the settings choose. The choice is logged, and lasts while it is open.

    `mesh_mode` is the mode of the mesh's other processes, if it is known. If they are distributed,
    `auto` does not choose the local mode, which would split conversations.

    Raises:
        ConfigurationError: the distributed mode has no URL, or its server does not answer.
        JournalUnavailableError: the file of the local mode can't be used.
    """
    async with AsyncExitStack() as stack:
        if table.mode == "local" or (table.mode == "auto" and not table.url):
            reason = "it is set" if table.mode == "local" else "messaging.url is not set"
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
    extra = {"mode": store.mode, "configured": table.mode, "reason": reason, "file": str(path)}
    # A warning if Redis was wanted: other processes of the mesh may use it.
    level = logging.WARNING if table.mode == "auto" and table.url else logging.INFO
    logger.log(level, "messages.mode", extra=extra)
    return store


async def _open_distributed(
    stack: AsyncExitStack, table: MessagingSettings, keyring: Keyring | None
) -> MessageStore:
    opening = RedisMessageStore.open(table, keyring=keyring)
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await stack.enter_async_context(opening)
    except TimeoutError:
        raise PeerUnavailableError(PEER, f"it did not answer within {_ANSWER_S:g} s") from None
