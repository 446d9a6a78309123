"""Lists and watches the tasks of an account on all hosts of the mesh."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple

from trunkline.client.backoff import Backoff
from trunkline.client.directory import Directory
from trunkline.errors import PeerError, TrunklineError
from trunkline.journal.listing import make_page_token, merge_pages, parse_page_size
from trunkline.runtime import run_in_background
from trunkline.v1 import registry_service_pb2, snapshot_pb2, task_service_pb2

__all__ = [
    "MeshTaskPage",
    "MeshTaskWatch",
    "list_mesh_tasks",
    "make_page_token",
    "watch_mesh_tasks",
]

logger = logging.getLogger(__name__)

# A watcher that is further behind lists all tasks again.
_MAX_PENDING: Final = 1000
# A host that does not answer within this time joins the watch later.
_OPEN_TIMEOUT_S: Final = 5.0


class MeshTaskPage(NamedTuple):
    """A page of the tasks of all hosts."""

    tasks: Sequence[snapshot_pb2.TaskSummary]
    next_page_token: str
    is_incomplete: bool
    """True if a host did not answer."""


async def list_mesh_tasks(
    directory: Directory, request: task_service_pb2.ListTasksRequest
) -> MeshTaskPage:
    """Return a page of an account's tasks on all hosts, newest status first.

    Hosts that do not answer are left out.

    Raises:
        InvalidArgumentError: the page size or the token is invalid.
        PeerError: no host answers.
    """
    size = parse_page_size(request)
    pages: list[task_service_pb2.ListTasksResponse] = []
    failures: list[TrunklineError] = []

    async def read(address: str) -> None:
        try:
            pages.append(await directory.client_at(address).list_tasks(request))
        except TrunklineError as error:
            # If raised here, it would leave the TaskGroup as an ExceptionGroup.
            failures.append(error)

    async with asyncio.TaskGroup() as group:
        for address in _task_addresses(directory.hosts):
            group.create_task(read(address))
    for error in failures:
        if not isinstance(error, PeerError) or not pages:
            raise error
    if not pages:
        return MeshTaskPage((), "", is_incomplete=False)
    page = merge_pages(pages, size)
    return MeshTaskPage(page.tasks, page.next_page_token, is_incomplete=bool(failures))


class MeshTaskWatch:
    """The changes of an account's tasks that were not taken yet."""

    def __init__(self, directory: Directory, account: str, *, limit: int = _MAX_PENDING) -> None:
        self._directory = directory
        self._account = account
        self._limit = limit
        self._pending: dict[str, snapshot_pb2.TaskSummary] = {}
        self._is_incomplete = False
        self._error: TrunklineError | None = None
        self._ready = asyncio.Event()

    async def take(self) -> tuple[list[snapshot_pb2.TaskSummary], bool]:
        """Wait for changes; return the tasks as they are now, and True if changes are missing.

        Raises:
            TrunklineError: a host refuses the watch.
        """
        await self._ready.wait()
        self._ready.clear()
        if self._error is not None:
            raise self._error
        tasks, is_incomplete = list(self._pending.values()), self._is_incomplete
        self._pending.clear()
        self._is_incomplete = False
        return tasks, is_incomplete

    async def follow_hosts(self, opened: asyncio.Event) -> None:
        """Watch each host while it is on the mesh. Set `opened` when all of them are watched."""
        directory = self._directory
        readers: dict[str, asyncio.Task[None]] = {}
        journals: set[str] = set()
        async with asyncio.TaskGroup() as group:
            waiting: list[asyncio.Event] = []
            while True:
                revision = directory.revision
                addresses = _task_addresses(directory.hosts)
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
                    # Tasks of a journal change unseen until its next host is watched.
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
                client = self._directory.client_at(address)
                async with aclosing(
                    client.watch_tasks(account=self._account, with_text=True)
                ) as responses:
                    async for response in responses:
                        backoff.reset()
                        if opened.is_set() and not response.tasks:
                            self._drop()
                        opened.set()
                        self._add(response)
            except PeerError as error:
                logger.debug("tasks.watch_ended", extra={"problem": str(error)})
            except TrunklineError as error:
                self._error = error
                self._ready.set()
            opened.set()
            await backoff.pause()

    def _add(self, response: task_service_pb2.WatchTasksResponse) -> None:
        if response.is_incomplete:
            self._drop()
        for task in response.tasks:
            self._pending.pop(task.task_id, None)
            self._pending[task.task_id] = task
        if len(self._pending) > self._limit:
            self._drop()
        if self._pending:
            self._ready.set()

    def _drop(self) -> None:
        self._pending.clear()
        self._is_incomplete = True
        self._ready.set()


@asynccontextmanager
async def watch_mesh_tasks(directory: Directory, account: str) -> AsyncIterator[MeshTaskWatch]:
    """Watch the tasks of an account on all hosts while the block runs.

    What is listed inside the block is outdated only by what the watch returns.
    """
    watch = MeshTaskWatch(directory, account)
    opened = asyncio.Event()
    async with run_in_background(watch.follow_hosts(opened)):
        await opened.wait()
        yield watch


def _task_addresses(hosts: Sequence[registry_service_pb2.Host]) -> set[str]:
    return {host.address for host in hosts if host.journal_ids}
