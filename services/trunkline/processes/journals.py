"""The journals of a data directory: the own journal of a host, and journals of dead hosts.

The journals of one agent name are a family: `math.db`, then `math.2.db`, `math.3.db`, … while
other hosts have the lower numbers. Agent names have no dots, so families don't overlap.
"""

import asyncio
import logging
import re
import shutil
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import checkpoint_path, open_sqlite_memory
from trunkline.conversations.turn_order import LocalTurns
from trunkline.core.encryption import Keyring, open_keyring
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.artifacts import BlobStore
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.catalog import JournalCatalog, OrphanedJournal
from trunkline.journal.journal import Journal
from trunkline.journal.retention import Retention
from trunkline.journal.sqlite import JOURNAL_FOLDER, SqliteCatalog
from trunkline.journal.store import JournalReader, JournalStore

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase
    from trunkline.journal.artifacts.postgres.objects import ObjectBucket

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """A journal that this process has opened."""

    journal: Journal
    memory: AgentMemory
    """What the agents of its tasks remember, which is taken over along with it."""
    path: Path
    is_new: bool = False
    """It was created by this process, so it contains no tasks of an earlier run."""


class HostJournals:
    """Chooses the journals that a host serves, and opens them.

    The catalog has the journals. With a database, the files and the memory of their tasks are there
    as well, else beside the journals.
    """

    def __init__(self, settings: Settings, database: "PostgresDatabase | None") -> None:
        """Use the database, or without one the files of the data directory."""
        self._database = database
        self._folder = settings.data_dir / JOURNAL_FOLDER
        self._settings = settings
        self._family = ""
        self._local_turns = LocalTurns()
        self._retention = Retention(
            compact_after_s=settings.compact_after_s, retain_s=settings.retain_s
        )

    @cached_property
    def _keyring(self) -> Keyring:
        # Opened with the first journal: `encryption_key_command` may take a while.
        return open_keyring(self._settings)

    async def open_own(self, family: str, agents: Set[str]) -> OpenJournal:
        """Open the first free journal of a family, or a new journal, as the own journal of a host.

        Other free journals are left to hosts that start at the same time; see `Takeover`. A journal
        with unfinished tasks of agents other than `agents` is skipped. A host never releases its
        own journal, so these tasks could not continue.

        Raises:
            ConfigurationError: the encryption key is missing or wrong.
            JournalUnavailableError: not even a new journal can be made.
        """
        self._family = family
        numbers = _find_numbers(family, await self._catalog.list_names())
        for number in sorted({1, *numbers}):
            name = _journal_name(family, number)
            try:
                unfinished = await self._catalog.list_agents(name)
                if unfinished is None or unfinished <= agents:
                    return replace(await self._open(name), is_new=unfinished is None)
            except JournalUnavailableError as error:
                await self._report_problem(name, error)
        return await self._open_new(family, max(numbers, default=0) + 1)

    async def open_reader(self) -> JournalReader | None:
        """Return a reader of all journals of the mesh, or None if each host has its own files.

        Raises:
            JournalUnavailableError: the database can't be read.
        """
        if self._database is None:
            return None
        from trunkline.journal.postgres import PostgresReader

        return await PostgresReader.open(self._database)

    async def find_orphans(self, *, rereads: bool = False) -> list[OrphanedJournal]:
        """Return the journals that a host may take over; see `JournalCatalog`.

        A journal that was released without unfinished tasks belongs to the hosts of its family,
        unless deliveries of its webhooks may still follow.
        """
        orphans = await self._catalog.find_orphans(rereads=rereads)
        return [
            orphan
            for orphan in orphans
            if orphan.agents
            or orphan.has_webhooks
            or not orphan.was_released
            or _find_numbers(self._family, {orphan.name})
        ]

    @property
    def leased_for_s(self) -> float:
        """The seconds for which all journals had an owner; see `JournalCatalog`."""
        return self._catalog.leased_for_s

    async def is_leased(self, journal_id: str) -> bool:
        """Return True if a live process serves the journal with this id under a valid lease."""
        return await self._catalog.is_leased(journal_id)

    async def take_over(
        self, orphan: OrphanedJournal, *, keeps_empty: bool = False
    ) -> OpenJournal | None:
        """Open the journal of a host that is gone. A frozen process is killed.

        Return None if the journal had no task; it is removed then, unless `keeps_empty`.

        Raises:
            JournalUnavailableError: another host was faster, the host is back, or the journal is
                encrypted under a key that this process does not have.
        """
        if orphan.is_empty and not keeps_empty and await self._remove_if_empty(orphan.name):
            return None
        try:
            return await self._load(orphan.name, await self._catalog.take_over(orphan.name))
        except ConfigurationError as error:
            # A host that serves its own journal continues without this journal.
            raise JournalUnavailableError(str(self._path(orphan.name)), error.problem) from error

    async def _open_new(self, family: str, number: int) -> OpenJournal:
        """Open a new journal by this number, or by the next that no other process has taken.

        Processes that start at the same time have seen the same numbers.
        """
        while True:
            name = _journal_name(family, number)
            try:
                return replace(await self._open(name), is_new=True)
            except JournalUnavailableError:
                if not await self._catalog.is_in_use(name):
                    raise
            number += 1

    async def _remove_if_empty(self, name: str) -> bool:
        """Remove a journal without tasks and the files beside it; return False if it has tasks."""
        try:
            if not await self._catalog.delete_if_empty(name):
                return False
        except JournalUnavailableError:
            return False  # Opening it reports the reason.
        await asyncio.to_thread(_remove_files, self._path(name))
        logger.info("journal.removed", extra={"path": self._path(name)})
        return True

    async def _report_problem(self, name: str, error: JournalUnavailableError) -> None:
        """Log that a journal can't be read, unless it is in use, or was just removed.

        `trunkline data check` shows more.
        """
        if not await self._catalog.is_in_use(name) and name in await self._catalog.list_names():
            extra = {"path": self._path(name), "problem": error.problem}
            logger.error("journal.left_out", extra=extra)

    async def _open(self, name: str) -> OpenJournal:
        return await self._load(name, await self._catalog.open(name))

    async def _load(self, name: str, store: JournalStore) -> OpenJournal:
        """Read the unfinished tasks of an open store, which is closed if that fails."""
        path = self._path(name)
        try:
            unfinished = await store.list_unfinished()
            memory = await self._open_memory(path, store)
        except BaseException:
            await store.close(for_takeover=True)
            raise
        journal = Journal(
            store,
            unfinished,
            retention=self._retention,
            path=path,
            keyring=self._keyring,
            blobs=self._open_blobs(store, path),
        )
        return OpenJournal(journal, memory, path)

    async def _open_memory(self, path: Path, store: JournalStore) -> AgentMemory:
        """Open what the agents of a journal remember."""
        if self._database is None:
            return await open_sqlite_memory(path, self._keyring, self._local_turns)
        from trunkline.conversations.postgres import open_postgres_memory

        return await open_postgres_memory(self._database, store.id, store.epoch, self._local_turns)

    def _open_blobs(self, store: JournalStore, path: Path) -> BlobStore:
        """Return the store of the files of a journal's tasks."""
        if self._database is None:
            return FolderBlobStore(blob_folder(path), keyring=self._keyring)
        from trunkline.journal.artifacts.postgres import PostgresBlobStore

        return PostgresBlobStore(self._database, store.id, store.epoch, bucket=self._bucket)

    @cached_property
    def _bucket(self) -> "ObjectBucket | None":
        return open_bucket(self._settings)

    @cached_property
    def _catalog(self) -> JournalCatalog:
        if self._database is None:
            synchronous = self._settings.synchronous
            return SqliteCatalog(
                self._folder, synchronous=synchronous, keyring=lambda: self._keyring
            )
        from trunkline.journal.postgres import PostgresCatalog

        return PostgresCatalog(self._database)

    def _path(self, name: str) -> Path:
        """Return the path with which the names of the files beside a journal begin."""
        return self._folder / f"{name}.db"


def open_bucket(settings: Settings) -> "ObjectBucket | None":
    """Return the bucket of the setting `files`, or None.

    Raises:
        ConfigurationError: it can't be used.
    """
    if not settings.files:
        return None
    try:
        from trunkline.journal.artifacts.postgres.objects import ObjectBucket
    except ImportError:
        problem = "needs the package obstore; install `trunkline[s3]`"
        raise ConfigurationError("files", problem) from None
    try:
        return ObjectBucket(settings.files)
    except ValueError as error:
        raise ConfigurationError("files", f"can't be used: {error}") from error


def _find_numbers(family: str, names: Set[str]) -> set[int]:
    """Return the numbers of a family's journals; a name without a number is 1."""
    pattern = re.compile(re.escape(_journal_name(family, 1)) + r"(?:\.([2-9]|[1-9][0-9]+))?")
    matches = (pattern.fullmatch(name) for name in names)
    return {int(match[1] or 1) for match in matches if match}


def _journal_name(family: str, number: int) -> str:
    """Return the name of a journal, in which a dot begins the number."""
    # No name of an agent has a tilde.
    stem = family.replace(".", "~")
    return stem if number == 1 else f"{stem}.{number}"


def _remove_files(path: Path) -> None:
    """Remove the files beside a journal that was removed."""
    checkpoints = checkpoint_path(path)
    for name in (checkpoints, f"{checkpoints}-wal", f"{checkpoints}-shm"):
        Path(name).unlink(missing_ok=True)
    shutil.rmtree(blob_folder(path), ignore_errors=True)
