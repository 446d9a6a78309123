"""Pages of an agent's tasks: ListTasks of A2A."""

import asyncio
from collections.abc import Sequence

from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import TaskNotFoundError, TrunklineError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.host_queries import fetch_task
from trunkline.mesh.client.mesh_tasks import list_agent_tasks, make_page_token
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2
from trunkline_bridge.a2a.projection import FileLinks, View, project_task, set_task_outcome
from trunkline_bridge.callers.caller import Caller

# Limit on the tasks of a page that are read in parallel.
_MAX_PARALLEL_READS = 8
# A page ends with the task that exceeds this size. One task may be as large as a turn's content.
_PAGE_BYTES = 4 * 1024 * 1024


async def fetch_task_page(
    directory: Directory,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    links: FileLinks,
    view: View = View.DETAILED,
) -> a2a_pb2.ListTasksResponse:
    """Return a page of the agent's tasks on all of its replicas.

    Whole tasks are read only if requested. The page ends after `page_size` tasks or 4 MiB,
    whichever comes first.
    """
    query = task_service_pb2.ListTasksRequest(
        account=caller.account,
        agent=caller.agent,
        context_id=request.context_id,
        state=request.status,
        page_size=request.page_size,
        page_token=request.page_token,
    )
    if request.HasField("status_timestamp_after"):
        query.status_after.CopyFrom(request.status_timestamp_after)
    page = await list_agent_tasks(directory, query)
    tasks: list[task_pb2.Task] = []
    is_whole = request.include_artifacts or request.history_length > 0
    if is_whole:
        count = await _read_tasks(directory, caller, request, page.tasks, links, view, into=tasks)
    else:
        tasks.extend(links.task_to_urls(_task_from_summary(row)) for row in page.tasks)
        count = _count_page(tasks)
        del tasks[count:]
    is_cut = count < len(page.tasks)
    response = a2a_pb2.ListTasksResponse(
        next_page_token=make_page_token(page.tasks[count - 1]) if is_cut else page.next_page_token,
        page_size=request.page_size,
        total_size=page.total_size,
    )
    response.tasks.extend(tasks)
    return response


async def _read_tasks(  # noqa: PLR0913  the parts of one request
    directory: Directory,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    rows: Sequence[snapshot_pb2.TaskSummary],
    links: FileLinks,
    view: View,
    *,
    into: list[task_pb2.Task],
) -> int:
    """Read the tasks of a page, in its order, and return the number of its rows.

    Tasks that were purged meanwhile are omitted.
    """
    failures: list[TrunklineError] = []
    history_length = requested_history_length(request)

    async def read(task_id: str) -> task_pb2.Task | None:
        try:
            snapshot = await fetch_task(directory, task_id, account=caller.account)
        except TaskNotFoundError:
            return None
        except TrunklineError as error:
            # If raised here, it would leave the TaskGroup as an ExceptionGroup.
            failures.append(error)
            return None
        return project_task(
            snapshot,
            history_length=history_length,
            include_artifacts=request.include_artifacts,
            links=links,
            view=view,
        )

    count, remaining_bytes = 0, _PAGE_BYTES
    # The first task is read alone, so that few large tasks are in memory at once.
    parallel = 1
    while count < len(rows):
        batch = rows[count : count + parallel]
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(read(row.task_id)) for row in batch]
        if failures:
            raise failures[0]
        for task in (each.result() for each in reads):
            count += 1
            if task is None:
                continue
            into.append(task)
            remaining_bytes -= task.ByteSize()
            if remaining_bytes <= 0:
                return count
        parallel = min(2 * parallel, _MAX_PARALLEL_READS)
    return count


def _count_page(tasks: Sequence[task_pb2.Task]) -> int:
    """Return how many of the tasks a page has room for; at least one, if there are any."""
    remaining_bytes = _PAGE_BYTES
    for number, task in enumerate(tasks, 1):
        remaining_bytes -= task.ByteSize()
        if remaining_bytes <= 0:
            return number
    return len(tasks)


def _task_from_summary(summary: snapshot_pb2.TaskSummary) -> task_pb2.Task:
    task = task_pb2.Task(id=summary.task_id, context_id=summary.context_id, status=summary.status)
    if summary.HasField("metadata"):
        task.metadata.CopyFrom(summary.metadata)
    set_task_outcome(task)
    return task


def requested_history_length(
    request: a2a_pb2.SendMessageConfiguration | a2a_pb2.GetTaskRequest | a2a_pb2.ListTasksRequest,
) -> int | None:
    """Return the limit of a request on history messages of the task, or None for all."""
    return request.history_length if request.HasField("history_length") else None
