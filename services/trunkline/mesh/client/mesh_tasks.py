"""Lists and watches the tasks of an account on all hosts of the mesh."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, NamedTuple, TypeAlias

from trunkline.errors import PeerUnavailableError
from trunkline.journal.listing import make_page_token, merge_pages, parse_page_size
from trunkline.mesh.client.directory import Directory
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.host_queries import query_hosts
from trunkline.mesh.client.mesh_watch import (
    HostChanges,
    MeshWatch,
    open_mesh_watch,
)
from trunkline.mesh.client.methods import canceling
from trunkline.v1 import snapshot_pb2, task_service_pb2

__all__ = [
    "MeshTaskPage",
    "MeshTaskWatch",
    "list_agent_tasks",
    "list_host_tasks",
    "list_mesh_tasks",
    "make_page_token",
    "watch_mesh_tasks",
]

_PAGE_SIZE: Final = 100

TaskSummary: TypeAlias = snapshot_pb2.TaskSummary
MeshTaskWatch: TypeAlias = MeshWatch[TaskSummary]
"""The changes of an account's tasks that were not taken yet."""


class MeshTaskPage(NamedTuple):
    """A page of the tasks of all hosts."""

    tasks: Sequence[snapshot_pb2.TaskSummary]
    next_page_token: str
    is_incomplete: bool
    """True if a host did not answer, or died and no other host reads its tasks."""


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
    request.whole_store = True
    found = await query_hosts(
        directory, lambda host: host.tasks.ListTasks(request), one_per_store=True
    )
    if found.failures and not found.answers:
        raise found.failures[0]
    is_incomplete = bool(found.failures or directory.missing_hosts)
    if not found.answers:
        return MeshTaskPage((), "", is_incomplete)
    page = merge_pages(found.answers, size)
    return MeshTaskPage(page.tasks, page.next_page_token, is_incomplete)


async def list_agent_tasks(
    directory: Directory,
    request: task_service_pb2.ListTasksRequest,
    *,
    skips_unreachable: bool = False,
) -> task_service_pb2.ListTasksResponse:
    """Return a page of an agent's tasks on all hosts that run it, newest status first.

    Hosts that share a store list the tasks of all hosts, also of those that are gone, and also if
    no host runs the agent.
    With `skips_unreachable`, hosts that do not answer are left out, unless none answers.

    Raises:
        AgentNotFoundError: no host runs it, and no store has such a task of it.
        InvalidArgumentError: the page size or the token is invalid.
        PeerError: one of the hosts does not answer, or all are gone and no host has their store.
    """
    size = parse_page_size(request)
    request.whole_store = True
    found = await query_hosts(
        directory,
        lambda host: host.tasks.ListTasks(request),
        hosts=directory.list_readers(request.agent),
        one_per_store=True,
    )
    if found.failures and not (skips_unreachable and found.answers):
        raise found.failures[0]
    page = found.answers[0] if len(found.answers) == 1 else merge_pages(found.answers, size)
    if not page.tasks and not request.page_token:
        with suppress(PeerUnavailableError):
            directory.get_agent(request.agent)
    return page


async def list_host_tasks(
    host: HostClient, query: task_service_pb2.ListTasksRequest, *, limit: int
) -> AsyncGenerator[snapshot_pb2.TaskSummary]:
    """Yield the tasks of a host, page by page, up to a limit."""
    request = task_service_pb2.ListTasksRequest()
    request.CopyFrom(query)
    count = 0
    while count < limit:
        request.page_size = min(_PAGE_SIZE, limit - count)
        page = await host.tasks.ListTasks(request)
        count += len(page.tasks)
        for task in page.tasks:
            yield task
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return


def watch_mesh_tasks(
    directory: Directory, account: str
) -> AbstractAsyncContextManager[MeshTaskWatch]:
    """Watch the tasks of an account on all hosts in a block.

    What is listed inside the block is outdated only by what the watch returns.
    """

    async def watch_host(client: HostClient) -> AsyncGenerator[HostChanges[TaskSummary], None]:
        watch = task_service_pb2.WatchTasksRequest(account=account, with_text=True)
        with canceling(client.tasks.WatchTasks(watch)) as responses:
            async for response in responses:
                items = [(task.task_id, task) for task in response.tasks]
                yield HostChanges(items, response.is_incomplete)

    return open_mesh_watch(directory, watch_host)
