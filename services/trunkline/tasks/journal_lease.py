"""The lease of a host on its journal, renewed until it is lost or released."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from trunkline.core.runtime import sleep_until_tick
from trunkline.errors import FencedError, JournalUnavailableError, PeerUnavailableError
from trunkline.journal.journal import Journal
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading

logger = logging.getLogger(__name__)


class JournalLease:
    """Renews the lease on a journal, and reports its loss."""

    def __init__(self, journal: Journal, lease_s: float, *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called once, when the lease is lost or released."""
        self.lost: asyncio.Event = asyncio.Event()
        """Set when the lease is lost or released; nothing is written or answered after that."""
        self._journal = journal
        self._lease_s = lease_s
        self._on_lost = on_lost
        # The end of the lease by the clock of this process.
        self._until_s = math.inf
        instruments.JOURNALS_HELD.watch(self, JournalLease._count_held)
        for reason in ("", JournalUnavailableError.reason):
            instruments.LEASE_RENEWALS.begin(reason)

    def check(self) -> None:
        """Raise PeerUnavailableError if the lease is lost or released."""
        if self.lost.is_set():
            raise journal_moved_error()

    @property
    def is_renewed(self) -> bool:
        """Whether the lease has not ended by the clock of this host."""
        return asyncio.get_running_loop().time() <= self._until_s

    def check_renewed(self) -> None:
        """Check that no other host may take over the journal, so that it may get new work.

        Raises:
            PeerUnavailableError: the lease is lost or released.
            JournalUnavailableError: the lease has ended, and could not be renewed so far.
        """
        self.check()
        if not self.is_renewed:
            problem = "its lease has ended, and this host can't renew it; try again later"
            raise JournalUnavailableError(self._journal.id, problem)

    async def renew_until_lost(self) -> None:
        """Renew the lease until it is lost, or this call is canceled."""
        loop = asyncio.get_running_loop()
        was_renewed, self._until_s = True, loop.time() + self._lease_s
        while not self.lost.is_set():
            # The store measures the lease from a later time.
            sent_s = loop.time()
            try:
                await self._journal.renew_lease(self._lease_s)
                instruments.LEASE_RENEWALS.add(1, "")
                self._log_gap(loop.time() - self._until_s)
                was_renewed, self._until_s = True, sent_s + self._lease_s
            except FencedError:
                self.mark_lost()
                return
            except JournalUnavailableError as error:
                instruments.LEASE_RENEWALS.add(1, error.reason)
                # A full disk may have room again before the lease expires.
                if was_renewed:
                    logger.error("host.lease_not_renewed", extra={"problem": error.problem})
                was_renewed = False
            await sleep_until_tick(self._lease_s / 3)

    def _log_gap(self, expired_for_s: float) -> None:
        """Log a renewal after the expiry, when another host could have taken the journal."""
        if expired_for_s > 0:
            extra = {"journal": self._journal.id, "over_for_s": round(expired_for_s, 1)}
            logger.warning("host.lease_renewed_late", extra=extra)

    def mark_lost(self) -> None:
        """Record that another host has taken over the journal."""
        if not self.lost.is_set():
            logger.error("host.lease_lost", extra={"journal": self._journal.id})
            self._end()

    def release(self) -> None:
        """Release the journal to the next host."""
        if not self.lost.is_set():
            logger.warning("journal.given_back", extra={"journal": self._journal.id})
            self._end()

    def _count_held(self) -> Sequence[Reading]:
        is_held = not self.lost.is_set() and not self._journal.is_closed
        return [((), 1)] if is_held else ()

    def _end(self) -> None:
        instruments.LEASES_LOST.add(1)
        self.lost.set()
        self._on_lost()


def journal_moved_error() -> PeerUnavailableError:
    """Return the error for tasks of a journal that this host has lost or released."""
    return PeerUnavailableError(
        "this host", "another host has its journal now; send the request there"
    )
