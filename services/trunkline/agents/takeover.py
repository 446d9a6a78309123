"""Takes over the journals and the names of hosts that died, so that nothing of theirs is stuck."""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from trunkline.agents.handover import Handover
from trunkline.agents.journals import JournalFolder, OpenJournal
from trunkline.aligned_timer import next_tick
from trunkline.client import Backoff, Directory
from trunkline.errors import JournalUnavailableError
from trunkline.journal.sqlite import OrphanedJournal
from trunkline.registry import Membership
from trunkline.tasks.host import TaskHost
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# A journal is said to be in trouble when so many takeovers of it failed: whoever was merely slower
# finds it in good hands by then.
_SERIOUS: Final = 3


class Takeover:
    """Looks at the data directory four times a lease.

    A journal whose host let its lease run out is taken over at once by whoever runs all the agents
    that its unfinished tasks need. Half a lease later whoever comes first takes it: what its agents
    can't go on with fails, and says so. Whoever has just started gives the others a lease and a
    half to start as well: after an outage of all, each is to find its own journal. A journal whose
    tasks all wait for somebody isn't for those that run none of its agents: it stays until a host
    of them comes, which alone can go on with an answer. What a host gave back when it left is
    opened by whoever stood by for its agents. What was taken by a host that can't go on with what
    waits there is given to one that can, when it comes; see `Handover`.
    """

    def __init__(
        self,
        hosts: TaskHost,
        journals: JournalFolder,
        membership: Membership,
        directory: Directory,
        *,
        lease_s: float,
        describe: Callable[[], registry_service_pb2.Host],
    ) -> None:
        """`describe` says what the registry is told of `hosts`."""
        self._hosts = hosts
        self._journals = journals
        self._membership = membership
        self._directory = directory
        self._handover = Handover(
            hosts, journals, membership, directory, describe=describe, lease_s=lease_s
        )
        self._lease_s = lease_s
        self._describe = describe
        self._stood_by = membership.standby.names
        self._known = hosts.journal_ids
        self._served: frozenset[str] = frozenset()
        self._alert_until_s = 0.0
        self._began = time.monotonic()
        self._setbacks = TakeoverBackoff()

    async def run(self) -> None:
        """Look again and again, until it is canceled or the host has lost its own journal."""
        while not self._hosts.lost.is_set():
            await asyncio.sleep(self._lease_s / 4)
            self._mind_what_left()
            orphans = await asyncio.to_thread(self._journals.orphans)
            self._setbacks.retain({orphan.journal_id for orphan in orphans})
            for orphan in orphans:
                if self._is_for_us(orphan):
                    await self._take(orphan)
            await self._succeed()
            await self._handover.run_once()
            if self._hosts.journal_ids != self._known:
                self._known = self._hosts.journal_ids
                self._membership.update(self._describe())

    def _mind_what_left(self) -> None:
        """Look closely for a lease when journals leave the mesh: some host may be giving one."""
        before = self._served
        self._served = frozenset(one for host in self._directory.hosts for one in host.journal_ids)
        if before - self._served:
            self._alert_until_s = time.monotonic() + self._lease_s
        if time.monotonic() < self._alert_until_s:
            self._journals.forget_leases()

    def _is_for_us(self, orphan: OrphanedJournal) -> bool:
        if orphan.journal_id in self._hosts.journal_ids:
            return False
        if self._setbacks.is_waiting(orphan.journal_id):
            return False
        ours = self._hosts.agents.keys()
        if orphan.agents <= ours:
            return True
        if orphan.is_only_waiting and not orphan.agents & ours:
            return False
        known_for_s = min(orphan.lost_for_s, time.monotonic() - self._began - self._lease_s)
        return known_for_s > self._lease_s / 2

    async def _succeed(self) -> None:
        """Open the journals that a host gave back whose agents are served here from now on."""
        before, self._stood_by = self._stood_by, self._membership.standby.names
        for agent in sorted(before - self._stood_by):
            ours = self._hosts.agents.keys()
            for free in await asyncio.to_thread(self._journals.open_free, agent, ours):
                await adopt_journal(self._hosts, free)

    async def _take(self, orphan: OrphanedJournal) -> None:
        try:
            found = await asyncio.to_thread(self._journals.take_over, orphan)
            if found is not None:
                await self._hosts.adopt(found.journal, checkpoint_path=found.checkpoint_path)
        except JournalUnavailableError as error:
            self._put_off(orphan, error)
            return
        if found is not None:
            logger.warning(
                "journal.taken_over",
                extra={"journal": orphan.journal_id, "lost_for_s": round(orphan.lost_for_s, 1)},
            )

    def _put_off(self, orphan: OrphanedJournal, error: JournalUnavailableError) -> None:
        """Try later: somebody may have been quicker, or it can't be read."""
        count = self._setbacks.record_failure(orphan.journal_id)
        level = logging.ERROR if count == _SERIOUS else logging.INFO
        extra = {"path": orphan.path, "problem": error.problem}
        logger.log(level, "journal.not_taken", extra=extra)


async def adopt_journal(hosts: TaskHost, free: OpenJournal) -> None:
    """Serve a journal that nobody had; one that can't be read is left out."""
    try:
        await hosts.adopt(free.journal, checkpoint_path=free.checkpoint_path)
    except JournalUnavailableError as error:
        logger.error("journal.left_out", extra={"path": free.path, "problem": error.problem})


async def claim_standby_names(
    membership: Membership, directory: Directory, *, every_s: float
) -> None:
    """Put agents that are on standby on the mesh as soon as nobody else has their names.

    It looks whenever the mesh changes, and again after `every_s`: a picture may have come before
    the registry's refusal did.
    """
    loop = asyncio.get_running_loop()
    while True:
        revision = directory.revision
        if revision:
            membership.claim_names(membership.standby.names - directory.list_agents().keys())
        with suppress(TimeoutError):
            async with asyncio.timeout_at(next_tick(loop.time(), every_s)):
                await directory.wait_for_change(revision)


# A journal that can't be taken over is tried again after so long at most.
_TRY_AGAIN_S: Final = 60.0


class TakeoverBackoff:
    """Pauses between tries of one journal: growing, and over when somebody has it.

    Of several hosts that try at once all but one fail. When that one dies in its turn they are to
    be there at once, however often they came too late before.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock in seconds that never goes back."""
        self._now = now
        self._of: dict[str, _Setback] = {}

    def record_failure(self, journal_id: str) -> int:
        """Note that a takeover failed; return how often, since the journal was lost."""
        setback = self._of.setdefault(journal_id, _Setback())
        setback.until_s = self._now() + setback.backoff.next_s()
        setback.count += 1
        return setback.count

    def is_waiting(self, journal_id: str) -> bool:
        """Tell whether it is too early for another try."""
        setback = self._of.get(journal_id)
        return setback is not None and self._now() < setback.until_s

    def retain(self, lost: Set[str]) -> None:
        """Forget all but these journals, which still have no host."""
        self._of = {one: setback for one, setback in self._of.items() if one in lost}


@dataclass(slots=True)
class _Setback:
    """With one journal."""

    backoff: Backoff = field(default_factory=lambda: Backoff(limit_s=_TRY_AGAIN_S))
    count: int = 0
    until_s: float = 0.0
