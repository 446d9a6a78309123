"""The lease of a host on its journal, renewed until it is lost or released."""

import asyncio
import logging
from collections.abc import Callable

from trunkline.errors import FencedError, JournalUnavailableError, PeerUnavailableError
from trunkline.journal.journal import Journal
from trunkline.runtime import sleep_until_tick

logger = logging.getLogger(__name__)


class JournalLease:
    """Says whether the journal is this host's, and keeps it so by renewing the lease."""

    def __init__(self, journal: Journal, lease_s: float, *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called once, when the lease is lost or released."""
        self.lost = asyncio.Event()
        """Set when another host has the journal: nothing is written or answered any more."""
        self._journal = journal
        self._lease_s = lease_s
        self._on_over = on_lost

    def check(self) -> None:
        """See that the journal is still this host's. PeerUnavailableError."""
        if self.lost.is_set():
            raise journal_moved_error()

    async def renew_until_lost(self) -> None:
        """Renew the lease, until this is canceled or the journal was lost."""
        loop = asyncio.get_running_loop()
        was_renewed, until_s = True, loop.time() + self._lease_s
        while not self.lost.is_set():
            try:
                self._journal.renew_lease(self._lease_s)
                self._mind_gap(loop.time() - until_s)
                was_renewed, until_s = True, loop.time() + self._lease_s
            except FencedError:
                self.mark_lost()
                return
            except JournalUnavailableError as error:
                # A full disk may have room again before the lease is over.
                if was_renewed:
                    logger.error("host.lease_not_renewed", extra={"problem": error.problem})
                was_renewed = False
            await sleep_until_tick(self._lease_s / 3)

    def _mind_gap(self, over_for_s: float) -> None:
        """Log that the lease had expired for a while, when another host could have taken it."""
        if over_for_s > 0:
            extra = {"journal": self._journal.id, "over_for_s": round(over_for_s, 1)}
            logger.warning("host.lease_renewed_late", extra=extra)

    def mark_lost(self) -> None:
        """Record that another host has taken the journal."""
        if not self.lost.is_set():
            logger.error("host.lease_lost", extra={"journal": self._journal.id})
            self._end()

    def release(self) -> None:
        """Release the journal to the next host."""
        if not self.lost.is_set():
            logger.warning("journal.given_back", extra={"journal": self._journal.id})
            self._end()

    def _end(self) -> None:
        self.lost.set()
        self._on_over()


def journal_moved_error() -> PeerUnavailableError:
    """Return the error for tasks of a journal that this host has lost or released."""
    return PeerUnavailableError("this host", "another one has its journal now; ask that")
