"""Queries of all hosts of the mesh that have journals."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from trunkline.client import Directory, HostClient
from trunkline.errors import PeerError

logger = logging.getLogger(__name__)

_PARALLEL_HOSTS: Final = 8

_Item = TypeVar("_Item")


@dataclass(slots=True)
class HostResults(Generic[_Item]):
    """The results of all hosts."""

    items: list[_Item] = field(default_factory=list)
    is_incomplete: bool = False
    """True if a host did not answer, or died, so that its results are missing."""


async def query_hosts(
    directory: Directory, query: Callable[[HostClient], Awaitable[Iterable[_Item]]]
) -> HostResults[_Item]:
    """Query every host that has a journal.

    A host that can't be reached is left out, since the other hosts can still be shown.

    Raises:
        TrunklineError: a host refused the query.
    """
    results = HostResults[_Item](is_incomplete=bool(directory.lost_hosts))
    refusals: list[Exception] = []
    slots = asyncio.Semaphore(_PARALLEL_HOSTS)

    async def ask(address: str) -> None:
        async with slots:
            try:
                results.items += await query(directory.client_at(address))
            except PeerError as error:
                extra = {"peer": address, "problem": str(error)}
                logger.info("page.host_left_out", extra=extra)
                results.is_incomplete = True
            except Exception as error:  # noqa: BLE001  a TaskGroup would wrap it
                refusals.append(error)

    async with asyncio.TaskGroup() as group:
        for host in directory.hosts:
            if host.journal_ids:
                group.create_task(ask(host.address))
    if refusals:
        raise refusals[0]
    return results
