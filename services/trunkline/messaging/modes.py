"""Chooses the store of messages, once at the start: local, distributed, or auto."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from trunkline.encryption import Keyring
from trunkline.errors import ConfigurationError
from trunkline.messaging.sqlite_store import SqliteMessageStore
from trunkline.messaging.store import MessageStore
from trunkline.settings import MessagingSettings

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_store(
    table: MessagingSettings, *, path: Path, keyring: Keyring | None
) -> AsyncIterator[MessageStore]:
    """Open the store that the settings choose. The choice is logged, and holds while it is open.

    Raises:
        ConfigurationError: the distributed mode has no URL, or its server does not answer.
        JournalUnavailableError: the file of the local mode can't be used.
    """
    if table.mode == "distributed":
        raise ConfigurationError("messaging.mode", "`distributed` is not built yet; use `local`")
    store = SqliteMessageStore(path, queue_limit=table.queue_limit, keyring=keyring)
    async with store:
        logger.info("messages.mode", extra={"mode": store.mode, "file": str(path)})
        yield store
