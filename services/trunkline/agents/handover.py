"""Gives journals whose tasks wait to hosts that can go on with them, when such a host comes."""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from contextlib import suppress
from typing import Final

from trunkline.agents.journals import JournalFolder
from trunkline.client import Directory
from trunkline.registry import Membership
from trunkline.tasks.host import TaskHost
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

_REST_LEASES: Final = 4


class Handover:
    """Looks through the journals that a host has taken over; see `Takeover`.

    One goes when nothing is done in it, its tasks wait for agents that aren't here, and another
    host of the same data directory runs all of them: its heir. Who gets a journal runs all agents
    of its tasks, and gives it to nobody: it never comes back.
    """

    def __init__(
        self,
        hosts: TaskHost,
        journals: JournalFolder,
        membership: Membership,
        directory: Directory,
        *,
        describe: Callable[[], registry_service_pb2.Host],
        lease_s: float,
    ) -> None:
        """`describe` says what the registry is told of `hosts`."""
        self._hosts = hosts
        self._journals = journals
        self._membership = membership
        self._directory = directory
        self._describe = describe
        self._patience_s = lease_s / 4
        self._rest_s = _REST_LEASES * lease_s
        self._rests: dict[str, float] = {}

    async def run_once(self) -> None:
        """Give what is to be given."""
        for journal_id, agents in self._hosts.journals_missing_agents().items():
            # One that came back, since its heir didn't take it, is not given again at once.
            is_resting = time.monotonic() < self._rests.get(journal_id, 0.0)
            if not is_resting and await self._has_heir(agents):
                await self._give(journal_id)

    async def _has_heir(self, agents: Set[str]) -> bool:
        """Tell whether a living host of this data directory can go on with tasks of the agents."""
        for host in self._directory.hosts:
            # A host is named after its own journal: where that is, it looks for others.
            if (
                host.host_id != self._hosts.journal.id
                and agents <= _agents_of(host)
                and await asyncio.to_thread(self._journals.is_held, host.host_id)
            ):
                return True
        return False

    async def _give(self, journal_id: str) -> None:
        """Take a journal off the mesh, then leave it.

        The registry is told first: a late word of ours would take the journal off its heir.
        """
        if not self._membership.registered.is_set():
            return
        with self._hosts.hide_journal(journal_id):
            self._membership.update(self._describe())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    await self._membership.registered.wait()
            # Meanwhile somebody may have canceled a task, or the journal be lost.
            if (
                self._membership.registered.is_set()
                and journal_id in self._hosts.journals_missing_agents()
            ):
                self._hosts.release_journal(journal_id)
                self._rests[journal_id] = time.monotonic() + self._rest_s
                return
        self._membership.update(self._describe())


def _agents_of(host: registry_service_pb2.Host) -> frozenset[str]:
    """Return the agents whose tasks a host can go on with, also those it stands by for."""
    return frozenset(agent.card.name for agent in host.agents) | frozenset(host.standby_agents)
