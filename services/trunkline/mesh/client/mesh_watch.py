"""Watches what changes on all hosts of the mesh that have journals."""

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from trunkline.core.backoff import Backoff
from trunkline.core.runtime import run_in_background
from trunkline.errors import PeerError, TrunklineError
from trunkline.mesh.client.directory import Directory
from trunkline.mesh.client.host import HostClient
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# A watcher that is further behind lists everything again.
_MAX_PENDING: Final = 1000
# A host that does not answer within this time joins the watch later.
_OPEN_TIMEOUT_S: Final = 5.0

_Item = TypeVar("_Item")


class HostChanges(NamedTuple, Generic[_Item]):
    """A response of the watch of one host. The first response is empty: the watch has begun."""

    items: Sequence[tuple[Hashable, _Item]]
    """The changed items as they are now, each with its key."""
    is_incomplete: bool
    """True if changes are missing."""


class MeshWatch(Generic[_Item]):
    """The changes on all hosts that were not taken yet."""

    def __init__(
        self,
        directory: Directory,
        watch_host: Callable[[HostClient], AsyncGenerator[HostChanges[_Item], None]],
    ) -> None:
        self._directory = directory
        self._watch_host = watch_host
        self._pending: dict[Hashable, _Item] = {}
        self._is_incomplete = False
        self._error: TrunklineError | None = None
        self._ready = asyncio.Event()

    async def take(self) -> tuple[list[_Item], bool]:
        """Wait for changes; return what changed as it is now, and True if changes are missing.

        Raises:
            TrunklineError: a host refuses the watch.
        """
        await self._ready.wait()
        self._ready.clear()
        if self._error is not None:
            raise self._error
        items, is_incomplete = list(self._pending.values()), self._is_incomplete
        self._pending.clear()
        self._is_incomplete = False
        return items, is_incomplete

    async def follow_hosts(self, opened: asyncio.Event) -> None:
        """Watch each host while it is on the mesh. Set `opened` when all of them are watched."""
        directory = self._directory
        readers: dict[str, asyncio.Task[None]] = {}
        journals: set[str] = set()
        async with asyncio.TaskGroup() as group:
            waiting: list[asyncio.Event] = []
            while True:
                revision = directory.revision
                addresses = journal_addresses(directory.hosts)
                for address in readers.keys() - addresses:
                    readers.pop(address).cancel()
                for address in addresses - readers.keys():
                    waiting.append(asyncio.Event())
                    readers[address] = group.create_task(self._read_host(address, waiting[-1]))
                for event in waiting:
                    await event.wait()
                waiting.clear()
                served = {journal for host in directory.hosts for journal in host.journal_ids}
                if opened.is_set() and served != journals:
                    # Its journals change unseen until its next host is watched.
                    self._drop()
                journals = served
                opened.set()
                await directory.wait_for_change(revision)

    async def _read_host(self, address: str, opened: asyncio.Event) -> None:
        """Read the changes of a host. A watch that is cut begins anew, and changes are missing."""
        backoff = Backoff()
        asyncio.get_running_loop().call_later(_OPEN_TIMEOUT_S, opened.set)
        while True:
            try:
                watch = self._watch_host(self._directory.client_at(address))
                async with aclosing(watch) as responses:
                    async for response in responses:
                        backoff.reset()
                        if opened.is_set() and not response.items:
                            self._drop()
                        opened.set()
                        self._add(response)
            except PeerError as error:
                logger.debug("mesh.host_watch_ended", extra={"problem": str(error)})
            except TrunklineError as error:
                self._error = error
                self._ready.set()
            opened.set()
            await backoff.pause()

    def _add(self, response: HostChanges[_Item]) -> None:
        if response.is_incomplete:
            self._drop()
        for key, item in response.items:
            self._pending.pop(key, None)
            self._pending[key] = item
        if len(self._pending) > _MAX_PENDING:
            self._drop()
        if self._pending:
            self._ready.set()

    def _drop(self) -> None:
        self._pending.clear()
        self._is_incomplete = True
        self._ready.set()


@asynccontextmanager
async def open_mesh_watch(
    directory: Directory,
    watch_host: Callable[[HostClient], AsyncGenerator[HostChanges[_Item], None]],
) -> AsyncIterator[MeshWatch[_Item]]:
    """Watch all hosts while the block runs.

    What is listed inside the block is outdated only by what the watch returns.
    """
    watch = MeshWatch(directory, watch_host)
    opened = asyncio.Event()
    async with run_in_background(watch.follow_hosts(opened)):
        await opened.wait()
        yield watch


def journal_addresses(hosts: Iterable[registry_service_pb2.Host]) -> set[str]:
    """Return the addresses of the hosts that have journals."""
    return {host.address for host in hosts if host.journal_ids}
