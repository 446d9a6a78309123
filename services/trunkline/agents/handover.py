"""Handover: journals whose tasks wait for input move to hosts that run their agents."""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from contextlib import suppress
from typing import Final

from trunkline.agents.journals import JournalFolder
from trunkline.mesh.client import Directory
from trunkline.mesh.registry import Membership
from trunkline.tasks.host import TaskHost
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

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
        journals: JournalFolder,
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
        for journal_id, agents in self._host.journals_missing_agents().items():
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
                and agents <= _list_agents(host)
                and await asyncio.to_thread(self._journals.is_leased, host.host_id)
            ):
                return True
        return False

    async def _release(self, journal_id: str) -> None:
        """Remove a journal from the registry, then release it.

        In the other order, a late registration of ours would take the journal from its new host.
        """
        if not self._membership.registered.is_set():
            return
        with self._host.hide_journal(journal_id):
            self._membership.update(self._describe())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    await self._membership.registered.wait()
            # In the meantime a task may have been canceled, or the journal lost.
            if (
                self._membership.registered.is_set()
                and journal_id in self._host.journals_missing_agents()
            ):
                self._host.release_journal(journal_id)
                self._paused_until_s[journal_id] = time.monotonic() + self._pause_s
                return
        self._membership.update(self._describe())


def _list_agents(host: registry_service_pb2.Host) -> frozenset[str]:
    """Return the agents that a host runs, or is on standby for."""
    return frozenset(agent.card.name for agent in host.agents) | frozenset(host.standby_agents)
