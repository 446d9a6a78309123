"""Queries of the hosts of the mesh that have journals."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from trunkline.errors import PeerError, PeerTimeoutError, PeerUnavailableError
from trunkline.mesh.client.directory import Directory
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.mesh_watch import journal_addresses
from trunkline.v1 import registry_service_pb2, snapshot_pb2

logger = logging.getLogger(__name__)

_PARALLEL_HOSTS: Final = 8
# The time for an answer of a host that may be frozen, if another one can answer as well.
_PATIENCE_S: Final = 2.0

_Result = TypeVar("_Result")


@dataclass(slots=True)
class HostResults(Generic[_Result]):
    """What the hosts answered."""

    answers: list[_Result] = field(default_factory=list)
    """The answers, one of each host that answered."""
    failures: list[PeerError] = field(default_factory=list)
    """The errors of hosts that can't be reached, so that their answers are missing."""


async def query_task(
    directory: Directory, task_id: str, query: Callable[[HostClient], Awaitable[_Result]]
) -> _Result:
    """Query the host of a task, or if it does not answer, another host that reads its store.

    `query` reads only.

    Raises:
        TaskNotFoundError: no host knows the task.
        PeerUnavailableError: no host that can read the task answers.
    """
    host = directory.get_task_host(task_id)
    try:
        async with asyncio.timeout(_PATIENCE_S if host.store_id else None):
            return await query(directory.client_at(host.address))
    except (PeerUnavailableError, TimeoutError) as error:
        other = directory.choose_reader(task_id, besides=host.address)
        if other is None and isinstance(error, PeerUnavailableError):
            raise
    return await query(directory.client_at((other or host).address))


async def fetch_task(
    directory: Directory, task_id: str, *, account: str
) -> snapshot_pb2.TaskSnapshot:
    """Return a task's snapshot; raises what `query_task` raises."""
    return await query_task(
        directory, task_id, lambda host: host.get_task(task_id, account=account)
    )


async def query_hosts(
    directory: Directory,
    query: Callable[[HostClient], Awaitable[_Result]],
    *,
    hosts: Iterable[registry_service_pb2.Host] | None = None,
    one_per_store: bool = False,
) -> HostResults[_Result]:
    """Query every host that has a journal, or those of `hosts` that have one, several at once.

    With `one_per_store`, of the hosts that share a store only one is asked, or the next if it does
    not answer soon. A host that can't be reached is left out, since the other hosts can still be
    shown.

    Raises:
        TrunklineError: a host refused the query.
    """
    results = HostResults[_Result]()
    refusals: list[Exception] = []
    slots = asyncio.Semaphore(_PARALLEL_HOSTS)

    async def ask(addresses: Sequence[str]) -> None:
        failures: list[PeerError] = []
        async with slots:
            for address in addresses:
                is_last = address == addresses[-1]
                try:
                    async with asyncio.timeout(None if is_last else _PATIENCE_S):
                        results.answers.append(await query(directory.client_at(address)))
                except TimeoutError:
                    failures.append(PeerTimeoutError(address, "it does not answer"))
                except PeerError as error:
                    failures.append(error)
                except Exception as error:  # noqa: BLE001  a TaskGroup would wrap it
                    refusals.append(error)
                    return
                else:
                    return
                extra = {"peer": address, "problem": str(failures[-1])}
                logger.info("mesh.host_left_out", extra=extra)
        results.failures += failures[:1]

    asked = directory.hosts if hosts is None else hosts
    if one_per_store:
        sources = [[host.address for host in same] for same in directory.group_by_store(asked)]
    else:
        sources = [[address] for address in sorted(journal_addresses(asked))]
    async with asyncio.TaskGroup() as group:
        for addresses in sources:
            group.create_task(ask(addresses))
    if refusals:
        raise refusals[0]
    return results
