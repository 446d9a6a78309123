"""The interface to the journals that hosts share: their names, their owners, and takeover."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from trunkline.core.runtime import run_with_late_cancel
from trunkline.journal.store import JournalStore

_Store = TypeVar("_Store", bound=JournalStore)


@dataclass(frozen=True, slots=True)
class OrphanedJournal:
    """A journal without an owner: its lease has expired, or its owner released it."""

    name: str
    journal_id: str
    lost_for_s: float
    """Seconds since the lease expired, or since the release."""
    agents: frozenset[str]
    """The agents of its unfinished tasks."""
    was_released: bool = False
    """Its last owner released it."""
    is_only_waiting: bool = False
    """It has unfinished tasks, and all of them wait for input or credentials."""
    is_empty: bool = False
    """It contains no tasks."""
    has_webhooks: bool = False
    """It has webhooks with deliveries that may still follow."""


class JournalCatalog(Protocol):
    """All journals that the hosts of one data directory share.

    A journal has a name, which hosts choose, and an id, with which the ids of its tasks begin. One
    process at most owns it: the process that opened it or took it over last. The owner renews its
    lease by `JournalStore.renew_lease`, and releases the journal by `JournalStore.close`. If it
    does neither, the journal is an orphan once the lease has expired. A takeover increases the
    epoch, so that all later writes of the earlier owner raise FencedError.

    All methods raise JournalUnavailableError if a journal can't be read or written.
    """

    async def list_names(self) -> frozenset[str]:
        """Return the names of all journals."""
        ...

    async def is_in_use(self, name: str) -> bool:
        """Return whether a process has the journal open."""
        ...

    async def list_agents(self, name: str) -> frozenset[str] | None:
        """Return the agents of a journal's unfinished tasks, or None if there is no such journal.

        No process has the journal open.
        """
        ...

    async def open(self, name: str) -> JournalStore:
        """Open a journal, or create it, and become its owner.

        If the previous owner did not release it, the epoch increases. If the caller is canceled,
        the journal is not open afterwards.

        Raises:
            ConfigurationError: it is encrypted under a key that this process does not have.
            JournalUnavailableError: another process has it open.
        """
        ...

    async def take_over(self, name: str) -> JournalStore:
        """Open a journal whose lease has expired, as `open` does. A frozen owner is killed.

        Of concurrent takeovers, one succeeds.

        Raises:
            ConfigurationError: it is encrypted under a key that this process does not have.
            JournalUnavailableError: the lease holds, or another takeover was faster.
        """
        ...

    async def find_orphans(self, *, rereads: bool = False) -> list[OrphanedJournal]:
        """Return the journals that can be taken over, the longest expired first.

        Journals that can't be read are left out. A journal whose lease holds is not read again
        before the end of the lease, unless `rereads`, because its owner may release it earlier.
        """
        ...

    @property
    def leased_for_s(self) -> float:
        """The seconds after the last `find_orphans` for which all journals had an owner.

        Not above 0 if one had none, or if the store has to be searched often. Infinite without
        journals.
        """
        ...

    async def is_leased(self, journal_id: str) -> bool:
        """Return whether a living process has a valid lease on the journal with this id."""
        ...

    async def delete_if_empty(self, name: str) -> bool:
        """Delete a journal if it contains no tasks. Return whether it was deleted.

        Raises:
            JournalUnavailableError: a process has it open.
        """
        ...


async def open_or_release(opening: Coroutine[Any, Any, _Store]) -> _Store:
    """Return the journal that a catalog opens. If the caller is canceled, release it again."""

    async def release(task: asyncio.Task[_Store | Exception]) -> None:
        # Neither a thread nor a claim can be canceled.
        await asyncio.wait([task])
        opened = task.result()
        if not isinstance(opened, Exception):
            await opened.close(for_takeover=opened.was_lost)

    return await run_with_late_cancel(opening, release)
