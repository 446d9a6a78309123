"""Journals move between hosts: takeover after a death or a drain, and handover.

A host takes over the journals of hosts that are gone. It hands over a journal whose tasks wait for
input and need agents that another host runs.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from trunkline.errors import JournalUnavailableError
from trunkline.journal.catalog import OrphanedJournal
from trunkline.mesh.client import Backoff, Directory
from trunkline.mesh.registry import Membership
from trunkline.observe.metrics.instruments import TAKEOVER_TIME, TAKEOVERS
from trunkline.processes.journals import HostJournals
from trunkline.tasks.host import TaskHost
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# The number of the failure that is logged as an error. By then, a host that lost a race has seen
# that the journal is served.
_ERROR_AFTER: Final = 3
# A released journal without unfinished tasks waits so long for its process, which may be updated.
# In a database any host can read it meanwhile. In files, lists lack its tasks.
_RESTART_LEASES: Final = 60
_RESTART_LEASES_OF_FILES: Final = 6
# The journals without tasks that a host keeps.
_EMPTY_LIMIT: Final = 8
# Checks for orphaned journals in a lease, and while journals change hosts.
_CHECKS: Final = 4
_ALERT_CHECKS: Final = 20
# A host takes at most so many journals in a lease if others may take them, too. Before each, it
# waits a fraction of a lease for each host with fewer open turns.
_TURNS: Final = 10
_RANK_STEPS: Final = 40
_RANK_LIMIT: Final = 8
# The longest time in which a host tells the registry that it leaves.
_ANNOUNCE_S: Final = 2.0
# Callers learn within this time that a host leaves, and choose another one.
_NOTICE_S: Final = 0.2
# The longest pause between tries to take over one journal.
_MAX_PAUSE_S: Final = 60.0


class Takeover:
    """Takes over orphaned journals, of which it checks the store four times a lease at most.

    - While all journals have owners, the next check is when the first lease ends, or after a lease:
      the lease of a new journal does not end sooner.
    - A host that has just started waits half a lease before the first takeover, so that hosts that
      start at the same time find their own journals free.
    - Hosts that run all agents of a journal's unfinished tasks take it over as soon as its lease
      has ended. They take one journal each in turn, the host with the fewest open turns first, so
      that the journals of a dead host are spread over the replicas of its agents.
    - Half a lease later any host takes it over. Tasks whose agents it does not run fail with an
      error that names the agent.
    - A host that has just started waits a lease and a half before that. After an outage of all
      hosts, each gets its own journal back.
    - If all tasks of a journal wait for input, only hosts that run one of their agents take it
      over, because only they can continue after an answer.
    - A journal without unfinished tasks is taken over half a lease later, so that a host that
      starts again gets its own journal back.
    - A journal that was released without unfinished tasks is taken over by a host of its family,
      or by any host half a lease later if deliveries of its webhooks may still follow.
    - A lost journal without tasks is served as well, so that a delivery that had begun at its host
      gets the answer that it has no such task. A host keeps a few such journals, and removes
      others.

    `Handover` later passes a journal on if its waiting tasks need agents that this host lacks.
    """

    def __init__(
        self,
        host: TaskHost,
        journals: HostJournals,
        membership: Membership,
        directory: Directory,
        *,
        lease_s: float,
        describe: Callable[[], registry_service_pb2.Host],
    ) -> None:
        """`describe` returns the registration of `host`."""
        for reason in ("", JournalUnavailableError.reason):
            TAKEOVERS.begin(reason)
        self._host = host
        self._journals = journals
        self._membership = membership
        self._directory = directory
        self._handover = Handover(
            host, journals, membership, directory, describe=describe, lease_s=lease_s
        )
        self._lease_s = lease_s
        self._describe = describe
        self._registered = host.journals.ids
        self._served: frozenset[str] = frozenset()
        self._orphaned: set[str] = set()
        self._empty: set[str] = set()
        self._alert_until_s = 0.0
        self._started_s = time.monotonic()
        self._backoff = TakeoverBackoff()
        # A request may need a journal while it is taken over.
        self._taking = asyncio.Lock()
        host.journals.take_over = self.take_at_once

    async def run(self) -> None:
        """Check periodically, until canceled or until the host has lost its own journal."""
        was_checked = True
        while not self._host.lost.is_set():
            await self._wait()
            try:
                await self._take_orphans()
                await self._handover.run_once()
                was_checked = True
            except JournalUnavailableError as error:
                # The host continues with its own journals, and the next check may succeed.
                if was_checked:
                    extra = {"path": error.path, "problem": error.problem}
                    logger.error("journals.not_checked", extra=extra)
                was_checked = False
            self._register()

    def _register(self) -> None:
        """Register the host again if it is not registered, or not listed, with what it serves.

        The former host of a journal may register once more, when it thaws or reconnects, and ends
        when it learns that the journal is ours. Nobody would find the journal then.
        """
        ids = self._host.journals.ids
        if ids != self._registered or self._is_listed_without(ids):
            self._registered = ids
            self._membership.update(self._describe())

    def _is_listed_without(self, ids: Collection[str]) -> bool:
        """Return whether this host is listed, but not with all of these journals."""
        listed = (
            host.journal_ids
            for host in self._directory.hosts
            if host.host_id == self._host.journal.id
        )
        journal_ids = next(listed, None)
        return (
            journal_ids is not None
            and self._membership.registered.is_set()
            and not set(ids) <= set(journal_ids)
        )

    async def announce_leave(self) -> None:
        """If another host runs our agents, give it our tasks when this host ends.

        Callers choose that host for new tasks before this one refuses them.
        """
        agents = self._host.agents.keys()
        replicas = [host for host in self._directory.hosts if agents & _list_hosted_agents(host)]
        needed = self._host.journals.unfinished_agents
        try:
            if not await self._handover.has_successor(needed, replicas):
                return
        except JournalUnavailableError as error:
            logger.warning("journals.not_checked", extra={"problem": error.problem})
            return
        self._host.journals.begin_leaving()
        self._membership.update(self._describe())
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANNOUNCE_S):
                await self._membership.registered.wait()
                await asyncio.sleep(_NOTICE_S)

    async def _wait(self) -> None:
        """Wait until a journal may need a host, or journals have left the mesh."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        with suppress(TimeoutError):
            while not self._note_departures():
                async with asyncio.timeout_at(started_s + self._interval_s()):
                    await self._directory.wait_for_change(self._directory.revision)

    def _interval_s(self) -> float:
        """Return the time between two checks, as it is known now."""
        if self._is_alert():
            return self._lease_s / _ALERT_CHECKS
        ids = self._host.journals.ids
        if len(ids) > 1 or self._is_listed_without(ids):
            # A journal may have to be handed over, or registered again.
            return self._lease_s / _CHECKS
        return max(self._lease_s / _CHECKS, min(self._journals.leased_for_s, self._lease_s))

    async def _take_orphans(self) -> None:
        """Take over orphaned journals one at a time, in turn with the other hosts."""
        while not self._host.lost.is_set():
            orphan = await self._find_orphan()
            others = [] if orphan is None else self._list_rivals(orphan)
            own = (self._host.open_turns, self._host.journal.id)
            if rank := sum(other < own for other in others):
                # Hosts with fewer open turns go first, and may take this one.
                await asyncio.sleep(min(rank, _RANK_LIMIT) * self._lease_s / _RANK_STEPS)
                orphan = await self._find_orphan()
            if orphan is None:
                return
            await self._take_over(orphan)
            self._register()
            if others:
                await asyncio.sleep(self._lease_s / _TURNS)

    async def _find_orphan(self) -> OrphanedJournal | None:
        """Return the next journal that this host should take over, if there is one."""
        orphans = await self._journals.find_orphans(rereads=self._is_alert())
        self._orphaned = {orphan.journal_id for orphan in orphans}
        self._backoff.retain(self._orphaned)
        return next(filter(self._should_take, orphans), None)

    def _list_rivals(self, orphan: OrphanedJournal) -> list[tuple[int, str]]:
        """Return the other hosts that may take over a journal: their open turns and ids."""
        return [
            (host.load.open_turns, host.host_id)
            for host in self._directory.hosts
            # A dead host may be listed a little longer than its journal is leased.
            if host.host_id not in {self._host.journal.id, *self._orphaned}
            and not host.load.refuses_tasks
            and host.agents
            and orphan.agents <= _list_hosted_agents(host)
        ]

    def _note_departures(self) -> bool:
        """Return whether journals have left the mesh since the last call."""
        before = self._served
        self._served = frozenset(
            journal_id for host in self._directory.hosts for journal_id in host.journal_ids
        )
        if not before - self._served:
            return False
        self._alert_until_s = time.monotonic() + self._lease_s
        return True

    def _is_alert(self) -> bool:
        """Return whether journals left the mesh within a lease: their hosts may release them."""
        return time.monotonic() < self._alert_until_s

    def _should_take(self, orphan: OrphanedJournal) -> bool:
        if orphan.journal_id in self._host.journals.ids:
            return False
        if self._backoff.is_waiting(orphan.journal_id):
            return False
        started_for_s = time.monotonic() - self._started_s
        if started_for_s < self._lease_s / 2:
            return False
        ours = self._host.agents.keys()
        if not orphan.agents:
            leases = 0.5
            if orphan.was_released and not orphan.has_webhooks:
                is_readable = bool(self._host.journals.store_id)
                leases = _RESTART_LEASES if is_readable else _RESTART_LEASES_OF_FILES
            return orphan.lost_for_s > leases * self._lease_s
        if orphan.agents <= ours:
            return True
        if orphan.is_only_waiting and not orphan.agents & ours:
            return False
        known_for_s = min(orphan.lost_for_s, started_for_s - self._lease_s)
        return known_for_s > self._lease_s / 2

    async def take_at_once(self, journal_id: str) -> None:
        """Take over a journal that a request needs, if its lease has ended and we run its agents.

        Raises:
            JournalUnavailableError: the store can't be read.
        """
        for orphan in await self._journals.find_orphans():
            if orphan.journal_id == journal_id and orphan.agents <= self._host.agents.keys():
                await self._take_over(orphan)
                self._register()

    async def _take_over(self, orphan: OrphanedJournal) -> None:
        async with self._taking:
            if orphan.journal_id not in self._host.journals.hosts:
                await self._adopt(orphan)

    async def _adopt(self, orphan: OrphanedJournal) -> None:
        try:
            keeps_empty = not orphan.was_released and self._count_empty() < _EMPTY_LIMIT
            journal = await self._journals.take_over(orphan, keeps_empty=keeps_empty)
            if journal is not None:
                await self._host.journals.adopt(journal.journal, journal.memory)
        except JournalUnavailableError as error:
            self._log_failure(orphan, error)
            return
        if journal is None:
            return
        if orphan.is_empty:
            self._empty.add(orphan.journal_id)
        if orphan.was_released:
            logger.info("journal.adopted", extra={"journal": orphan.journal_id})
            return
        TAKEOVERS.add(1, "")
        TAKEOVER_TIME.record(orphan.lost_for_s)
        logger.warning(
            "journal.taken_over",
            extra={"journal": orphan.journal_id, "lost_for_s": round(orphan.lost_for_s, 1)},
        )

    def _count_empty(self) -> int:
        """Return the number of journals without tasks that this host has taken over."""
        hosts = self._host.journals.hosts
        self._empty = {
            journal_id
            for journal_id in self._empty & hosts.keys()
            if not hosts[journal_id].journal.has_tasks
        }
        return len(self._empty)

    def _log_failure(self, orphan: OrphanedJournal, error: JournalUnavailableError) -> None:
        # Another host was faster, or the journal can't be read.
        TAKEOVERS.add(1, error.reason)
        count = self._backoff.record_failure(orphan.journal_id)
        level = logging.ERROR if count == _ERROR_AFTER else logging.INFO
        extra = {"path": error.path, "problem": error.problem}
        logger.log(level, "journal.not_taken", extra=extra)


class TakeoverBackoff:
    """Growing pauses between tries to take over one journal, until some host serves it.

    If several hosts try at once, all but one fail. When this host dies later, the others must try
    at once, however often they have failed before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds and never goes back."""
        self._clock = clock
        self._failures: dict[str, _Failures] = {}

    def record_failure(self, journal_id: str) -> int:
        """Record a failed takeover; return the number of failures since the journal was lost."""
        failures = self._failures.setdefault(journal_id, _Failures())
        failures.retry_at_s = self._clock() + failures.backoff.next_s()
        failures.count += 1
        return failures.count

    def is_waiting(self, journal_id: str) -> bool:
        """Return True if it is too early for the next try."""
        failures = self._failures.get(journal_id)
        return failures is not None and self._clock() < failures.retry_at_s

    def retain(self, orphaned: Set[str]) -> None:
        """Forget all journals but these, which still have no host."""
        self._failures = {
            journal_id: failures
            for journal_id, failures in self._failures.items()
            if journal_id in orphaned
        }


@dataclass(slots=True)
class _Failures:
    """The failed takeovers of one journal."""

    backoff: Backoff = field(default_factory=lambda: Backoff(limit_s=_MAX_PAUSE_S))
    count: int = 0
    retry_at_s: float = 0.0


# The pause, in leases, before a journal that came back is released again.
_PAUSE_LEASES: Final = 4


class Handover:
    """Releases journals that a host has taken over but can't continue; see `Takeover`.

    A journal is released if none of its tasks run, some wait for agents that this host lacks, and
    another host of the same data directory runs all of their agents. That host takes it over and
    never releases it, so a journal does not go back and forth.
    """

    def __init__(
        self,
        host: TaskHost,
        journals: HostJournals,
        membership: Membership,
        directory: Directory,
        *,
        describe: Callable[[], registry_service_pb2.Host],
        lease_s: float,
    ) -> None:
        """`describe` returns the registration of `host`."""
        self._host = host
        self._journals = journals
        self._membership = membership
        self._directory = directory
        self._describe = describe
        self._patience_s = lease_s / 4
        self._pause_s = _PAUSE_LEASES * lease_s
        self._paused_until_s: dict[str, float] = {}

    async def run_once(self) -> None:
        """Release the journals that another host can continue."""
        for journal_id, agents in self._host.journals.find_missing_agents().items():
            # If the other host does not take a journal, this host takes it over again, and pauses.
            is_paused = time.monotonic() < self._paused_until_s.get(journal_id, 0.0)
            if not is_paused and await self.has_successor(agents, self._directory.hosts):
                await self._release(journal_id)

    async def has_successor(
        self, agents: Set[str], hosts: Iterable[registry_service_pb2.Host]
    ) -> bool:
        """Return whether another of some live hosts shares our store and runs all of the agents."""
        for host in hosts:
            # A host's id is its own journal's, which lies in the store that it checks.
            if (
                host.host_id != self._host.journal.id
                and agents <= _list_hosted_agents(host)
                and await self._journals.is_leased(host.host_id)
            ):
                return True
        return False

    async def _release(self, journal_id: str) -> None:
        """Remove a journal from the registry, then release it.

        In the other order, a late registration of ours would take the journal from its new host.
        """
        if not self._membership.registered.is_set():
            return
        with self._host.journals.hide(journal_id):
            self._membership.update(self._describe())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    await self._membership.registered.wait()
            # In the meantime a task may have been canceled, or the journal lost.
            if (
                self._membership.registered.is_set()
                and journal_id in self._host.journals.find_missing_agents()
            ):
                await self._host.journals.release(journal_id)
                self._paused_until_s[journal_id] = time.monotonic() + self._pause_s
                return
        self._membership.update(self._describe())


def _list_hosted_agents(host: registry_service_pb2.Host) -> frozenset[str]:
    """Return the agents that a host runs."""
    return frozenset(agent.card.name for agent in host.agents)
