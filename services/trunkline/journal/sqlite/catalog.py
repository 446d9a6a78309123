"""The journals in the files of one folder."""

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trunkline.core.database import Synchronous
from trunkline.core.encryption import Keyring
from trunkline.journal.catalog import OrphanedJournal, open_or_release
from trunkline.journal.sqlite.inspection import (
    delete_if_empty,
    find_orphaned_journals,
    has_live_owner,
    is_leased,
    list_unfinished_agents,
)
from trunkline.journal.sqlite.store import SqliteStore

JOURNAL_FOLDER: Final = "journals"
"""The folder of the journals in a data directory."""
_SUFFIX: Final = ".db"


class SqliteCatalog:
    """A `JournalCatalog` of the files NAME.db in a folder.

    Everything runs in threads: opening a file locks and converts it, and may kill a process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        synchronous: Synchronous = "normal",
        keyring: Callable[[], Keyring | None] = lambda: None,
    ) -> None:
        """`keyring` returns the keys. It is called in a thread, because it may take a while."""
        self._folder = folder
        self._synchronous = synchronous
        self._keyring = keyring
        # The ends of the leases of all files, by the monotonic clock; 0 without a valid lease.
        self._leases: dict[Path, float] = {}
        self._searched_s = 0.0
        self._unreadable: set[Path] = set()

    def path(self, name: str) -> Path:
        """Return the file of a journal."""
        return self._folder / f"{name}{_SUFFIX}"

    async def list_names(self) -> frozenset[str]:
        """Return the names of all journals."""
        return await asyncio.to_thread(
            lambda: frozenset(
                path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}")
            )
        )

    async def is_in_use(self, name: str) -> bool:
        """Return whether a process has the file locked."""
        return await asyncio.to_thread(has_live_owner, self.path(name))

    async def list_agents(self, name: str) -> frozenset[str] | None:
        """Return the agents of a journal's unfinished tasks; see `JournalCatalog`."""
        path = self.path(name)
        return await asyncio.to_thread(
            lambda: list_unfinished_agents(path) if path.exists() else None
        )

    async def open(self, name: str) -> SqliteStore:
        """Open a journal's file, or create it; see `JournalCatalog`."""
        return await self._open(SqliteStore.open, name)

    async def take_over(self, name: str) -> SqliteStore:
        """Open a journal whose lease has expired; see `JournalCatalog`."""
        return await self._open(SqliteStore.take_over, name)

    async def find_orphans(self, *, rereads: bool = False) -> list[OrphanedJournal]:
        """Return the journals that can be taken over; see `JournalCatalog`."""
        if rereads:
            self._leases.clear()
        self._searched_s = time.monotonic()
        return await asyncio.to_thread(
            find_orphaned_journals,
            self._folder,
            leases=self._leases,
            unreadable=self._unreadable,
        )

    @property
    def leased_for_s(self) -> float:
        """The seconds for which all journals had an owner; see `JournalCatalog`."""
        return min(self._leases.values(), default=math.inf) - self._searched_s

    async def is_leased(self, journal_id: str) -> bool:
        """Return whether a living process has a valid lease; see `JournalCatalog`."""
        return await asyncio.to_thread(is_leased, self._folder, journal_id)

    async def delete_if_empty(self, name: str) -> bool:
        """Delete the file of a journal if it contains no tasks; see `JournalCatalog`."""
        return await asyncio.to_thread(delete_if_empty, self.path(name))

    async def _open(self, open_file: Callable[..., SqliteStore], name: str) -> SqliteStore:
        def work() -> SqliteStore:
            return open_file(
                self.path(name), synchronous=self._synchronous, keyring=self._keyring()
            )

        return await open_or_release(asyncio.to_thread(work))
