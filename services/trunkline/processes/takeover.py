"""Journals and agent names move between hosts: takeover after a death, and handover.

A host takes over the journals of hosts that died. It hands over a journal whose tasks wait for
input and need agents that another host runs.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from trunkline.core.runtime import next_tick
from trunkline.errors import JournalUnavailableError
from trunkline.journal.catalog import OrphanedJournal
from trunkline.mesh.client import Backoff, Directory
from trunkline.mesh.client.mesh_words import TOOL_SERVICE
from trunkline.mesh.registry import Membership
from trunkline.observe.metrics.instruments import TAKEOVER_TIME, TAKEOVERS
from trunkline.processes.journals import HostJournals
from trunkline.tasks.host import TaskHost
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# The number of the failure that is logged as an error. By then, a host that lost a race has seen
# that the journal is served.
_ERROR_AFTER: Final = 3
# The journals without tasks that a host keeps.
_EMPTY_LIMIT: Final = 8
# The longest pause between tries to take over one journal.
_MAX_PAUSE_S: Final = 60.0


class Takeover:
    """Checks the data directory for orphaned journals four times a lease.

    - A host that runs all agents of a journal's unfinished tasks takes it over as soon as its lease
      has ended.
    - Half a lease later any host takes it over. Tasks whose agents it does not run fail with an
      error that names the agent.
    - A host that has just started waits a lease and a half before that. After an outage of all
      hosts, each gets its own journal back.
    - If all tasks of a journal wait for input, only hosts that run one of their agents take it
      over, because only they can continue after an answer.
    - A journal without tasks is served as well, so that a delivery that had begun at its host gets
      the answer that it has no such task. A host keeps a few such journals, and removes others.
    - A journal that a host released when it left is opened by the host on standby for its agents.

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
        self._standby = membership.standby.names
        self._registered = host.journals.ids
        self._served: frozenset[str] = frozenset()
        self._empty: set[str] = set()
        self._alert_until_s = 0.0
        self._started_s = time.monotonic()
        self._backoff = TakeoverBackoff()

    async def run(self) -> None:
        """Check periodically, until canceled or until the host has lost its own journal."""
        was_checked = True
        while not self._host.lost.is_set():
            await asyncio.sleep(self._lease_s / 4)
            try:
                await self._check()
                was_checked = True
            except JournalUnavailableError as error:
                # The host continues with its own journals, and the next check may succeed.
                if was_checked:
                    extra = {"path": error.path, "problem": error.problem}
                    logger.error("journals.not_checked", extra=extra)
                was_checked = False

    async def _check(self) -> None:
        orphans = await self._journals.find_orphans(rereads=self._may_be_released())
        self._backoff.retain({orphan.journal_id for orphan in orphans})
        for orphan in orphans:
            if self._should_take(orphan):
                await self._take_over(orphan)
        await self._open_released()
        await self._handover.run_once()
        if self._host.journals.ids != self._registered:
            self._registered = self._host.journals.ids
            self._membership.update(self._describe())

    def _may_be_released(self) -> bool:
        """Return whether journals left the mesh within a lease: their hosts may release them."""
        before = self._served
        self._served = frozenset(
            journal_id for host in self._directory.hosts for journal_id in host.journal_ids
        )
        if before - self._served:
            self._alert_until_s = time.monotonic() + self._lease_s
        return time.monotonic() < self._alert_until_s

    def _should_take(self, orphan: OrphanedJournal) -> bool:
        if orphan.journal_id in self._host.journals.ids:
            return False
        if self._backoff.is_waiting(orphan.journal_id):
            return False
        ours = self._host.agents.keys()
        if orphan.agents <= ours:
            return True
        if orphan.is_only_waiting and not orphan.agents & ours:
            return False
        known_for_s = min(orphan.lost_for_s, time.monotonic() - self._started_s - self._lease_s)
        return known_for_s > self._lease_s / 2

    async def _open_released(self) -> None:
        """Open the released journals of agents that this host was on standby for until now."""
        before, self._standby = self._standby, self._membership.standby.names
        for agent in sorted(before - self._standby):
            await adopt_journals(self._host, self._journals, agent, self._directory)

    async def _take_over(self, orphan: OrphanedJournal) -> None:
        try:
            keeps_empty = self._count_empty() < _EMPTY_LIMIT
            journal = await self._journals.take_over(orphan, keeps_empty=keeps_empty)
            if journal is not None:
                await self._host.journals.adopt(
                    journal.journal, checkpoint_path=journal.checkpoint_path
                )
        except JournalUnavailableError as error:
            self._log_failure(orphan, error)
            return
        if journal is not None:
            TAKEOVERS.add(1, "")
            TAKEOVER_TIME.record(orphan.lost_for_s)
            if orphan.is_empty:
                self._empty.add(orphan.journal_id)
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


async def adopt_journals(
    host: TaskHost, folder: HostJournals, family: str, directory: Directory
) -> None:
    """Serve the free journals of a family. A journal that can't be read is logged and left out."""
    async with aclosing(folder.open_free(family, host.agents.keys())) as journals:
        async for journal in journals:
            if journal.journal.has_tasks:
                directory.expect_service(TOOL_SERVICE)
            try:
                await host.journals.adopt(journal.journal, checkpoint_path=journal.checkpoint_path)
            except JournalUnavailableError as error:
                extra = {"path": journal.path, "problem": error.problem}
                logger.error("journal.left_out", extra=extra)


async def claim_standby_names(
    membership: Membership, directory: Directory, *, every_s: float
) -> None:
    """Register agents on standby as soon as no other host has their names.

    The check runs after each change of the mesh and every `every_s` seconds, because an update of
    the directory may arrive before the registry's refusal.
    """
    loop = asyncio.get_running_loop()
    while True:
        revision = directory.revision
        if revision:
            membership.claim_names(membership.standby.names - directory.list_agents().keys())
        with suppress(TimeoutError):
            async with asyncio.timeout_at(next_tick(loop.time(), every_s)):
                await directory.wait_for_change(revision)


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
            if not is_paused and await self._has_successor(agents):
                await self._release(journal_id)

    async def _has_successor(self, agents: Set[str]) -> bool:
        """Return True if a live host of this data directory runs all of the agents."""
        for host in self._directory.hosts:
            # A host's id is its own journal's, which lies in the directory that it checks.
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
    """Return the agents that a host runs, or is on standby for."""
    return frozenset(agent.card.name for agent in host.agents) | frozenset(host.standby_agents)
