"""The database of a process, if its settings name one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator["PostgresDatabase | None"]:
    """Yield the database of the setting `store`, or None if the stores are files.

    A process that starts before the database waits for it.

    Raises:
        ConfigurationError: the database can't be used with these settings.
    """
    if not settings.store:
        yield None
        return
    if settings.encryption_key or settings.encryption_key_file or settings.encryption_key_command:
        problem = "can't be used with an encryption key yet; let the database encrypt its disk"
        raise ConfigurationError("store", problem)
    try:
        from trunkline.core.postgres import PostgresDatabase
    except ImportError:
        problem = "needs the package asyncpg; install `trunkline[postgres]`"
        raise ConfigurationError("store", problem) from None
    async with PostgresDatabase(settings.store) as database:
        try:
            await database.wait_until_reachable()
        except JournalUnavailableError as error:
            problem = f"can't be used: {database.name} says: {error.problem}"
            raise ConfigurationError("store", problem) from error
        yield database
