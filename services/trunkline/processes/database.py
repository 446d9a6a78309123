"""The database of a process, if its settings name one, and what is in it or in files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.core.identity import JoinRecords, identity_folder
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles, SmallFiles
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.mesh.registry.owners import OWNERS_PATH

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase

DATABASE_FOLDER: Final = "postgresql"
"""The folder of a copy of a database with what no file of a data directory has."""


@asynccontextmanager
async def open_database(
    settings: Settings, *, waits: bool = True
) -> AsyncIterator["PostgresDatabase | None"]:
    """Yield the database of the setting `store`, or None if the stores are files.

    With `waits`, a process that starts before the database waits for it.

    Raises:
        ConfigurationError: the database can't be used with these settings.
    """
    database = create_database(settings)
    if database is None:
        yield None
        return
    async with database:
        try:
            if waits:
                await database.wait_until_reachable()
        except JournalUnavailableError as error:
            problem = f"can't be used: {database.name} says: {error.problem}"
            raise ConfigurationError("store", problem) from error
        yield database


def create_database(settings: Settings) -> "PostgresDatabase | None":
    """Return the database of the setting `store`, or None. It connects when it is used.

    Raises:
        ConfigurationError: the database can't be used with these settings.
    """
    if not settings.store:
        if settings.files:
            problem = "needs a database in `store`, or leave it out: files are beside the journals"
            raise ConfigurationError("files", problem)
        return None
    if settings.encryption_key or settings.encryption_key_file or settings.encryption_key_command:
        problem = "can't be used with an encryption key yet; let the database encrypt its disk"
        raise ConfigurationError("store", problem)
    try:
        from trunkline.core.postgres import PostgresDatabase
    except ImportError:
        problem = "needs the package asyncpg; install `trunkline[postgres]`"
        raise ConfigurationError("store", problem) from None
    return PostgresDatabase(settings.store)


@asynccontextmanager
async def require_database(settings: Settings) -> AsyncIterator["PostgresDatabase"]:
    """Yield the database of the setting `store`, without waiting for it.

    Raises:
        ConfigurationError: there is none, or it can't be used with these settings.
    """
    database = create_database(settings)
    if database is None:
        problem = "is not set; journals in the data directory are migrated when they are opened"
        raise ConfigurationError("store", problem)
    async with database:
        yield database


def find_small_files(settings: Settings, database: "PostgresDatabase | None") -> SmallFiles:
    """Return the small files of the database, or without one of the data directory."""
    if database is None:
        return FolderFiles(settings.data_dir)
    from trunkline.core.postgres.small_files import PostgresFiles

    return PostgresFiles(database)


def find_join_records(settings: Settings, database: "PostgresDatabase | None") -> JoinRecords:
    """Return the records of processes that joined: in the database, or the identity's folder.

    Raises:
        ConfigurationError: another user may change the user's state folder.
    """
    if database is not None:
        return JoinRecords(find_small_files(settings, database), "identity/")
    folder = identity_folder(settings)
    return JoinRecords(FolderFiles(folder.path.parent, folder.path.name))


async def open_join_records(settings: Settings, database: "PostgresDatabase | None") -> JoinRecords:
    """Return the records of processes that joined, for a registry.

    Records that were made on this machine before the mesh had a database are copied to it.

    Raises:
        ConfigurationError: the records of this machine can't be read.
        JournalUnavailableError: the database can't be reached.
    """
    records = find_join_records(settings, database)
    if database is not None:
        await records.add_from(find_join_records(settings, None))
    return records


async def open_registry_files(
    settings: Settings, database: "PostgresDatabase | None"
) -> SmallFiles:
    """Return the small files for a registry.

    The owners of journals that were recorded on this machine before the mesh had a database are
    copied to it.

    Raises:
        ConfigurationError: the owners of this machine can't be read.
        JournalUnavailableError: the database can't be reached.
    """
    files = find_small_files(settings, database)
    if database is not None and (owners := await FolderFiles(settings.data_dir).read(OWNERS_PATH)):
        await files.replace(OWNERS_PATH, owners, expected=None)
    return files


async def restore_join_records(settings: Settings, folder: Path) -> None:
    """Add the records in a copy of a database to those of this machine.

    `folder` is a data directory. Without records, nothing is done.

    Raises:
        ConfigurationError: the records can't be read or written.
    """
    records = find_join_records(settings, None)
    await records.add_from(JoinRecords(FolderFiles(folder / DATABASE_FOLDER, "identity")))


@asynccontextmanager
async def open_small_files(settings: Settings) -> AsyncIterator[SmallFiles]:
    """Yield the small files, for a process that needs the database for nothing else.

    It does not wait for the database.

    Raises:
        ConfigurationError: the database can't be used with these settings.
    """
    async with open_database(settings, waits=False) as database:
        yield find_small_files(settings, database)
