"""Pages of an agent's tasks: ListTasks of A2A."""

import asyncio
from collections.abc import Sequence

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline.client import HostClient
from trunkline.errors import TaskNotFoundError, TrunklineError
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.projection import (
    AnyTask,
    FileLinks,
    View,
    core_task,
    project_versioned_task,
    set_task_outcome,
)

# Limit on the tasks of a page that are read in parallel.
_MAX_PARALLEL_READS = 8


async def fetch_task_page(
    client: HostClient,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    links: FileLinks,
    view: View = View.DETAILED,
) -> a2a_pb2.ListTasksResponse | v1_1_pb2.ListTasksResponse:
    """Return a page of the agent's tasks on a host. Whole tasks are read only if requested.

    In A2A 1.1 they are always read, because rows of the journal have no generation; they have no
    history unless it is requested.
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
    page = await client.list_tasks(query)
    response = a2a_pb2.ListTasksResponse(
        next_page_token=page.next_page_token,
        page_size=request.page_size,
        total_size=page.total_size,
    )
    if caller.generations is not None:
        tasks = await _read_tasks(client, caller, request, page.tasks, links, view)
        versioned = v1_1_pb2.ListTasksResponse.FromString(response.SerializeToString())
        versioned.tasks.extend(task for task in tasks if isinstance(task, v1_1_pb2.Task))
        return versioned
    if request.include_artifacts or request.history_length > 0:
        tasks = await _read_tasks(client, caller, request, page.tasks, links, view)
        response.tasks.extend(core_task(task) for task in tasks)
    else:
        response.tasks.extend(
            links.task_to_urls(_task_from_summary(summary)) for summary in page.tasks
        )
    return response


async def _read_tasks(
    client: HostClient,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    rows: Sequence[snapshot_pb2.TaskSummary],
    links: FileLinks,
    view: View,
) -> Sequence[AnyTask]:
    """Read the tasks of a page, in its order. Tasks that were purged meanwhile are omitted."""
    tasks: dict[str, AnyTask] = {}
    failures: list[TrunklineError] = []
    slots = asyncio.Semaphore(_MAX_PARALLEL_READS)
    is_older = caller.generations is None
    history_length = requested_history_length(request) if is_older else request.history_length

    async def read(task_id: str) -> None:
        async with slots:
            try:
                snapshot = await client.get_task(
                    task_id, account=caller.account, with_timeline=caller.wants_timeline
                )
            except TaskNotFoundError:
                return
            except TrunklineError as error:
                # If raised here, it would leave the TaskGroup as an ExceptionGroup.
                failures.append(error)
                return
        tasks[task_id] = project_versioned_task(
            snapshot,
            caller.generations,
            history_length=history_length,
            include_artifacts=request.include_artifacts,
            links=links,
            view=view,
        )

    async with asyncio.TaskGroup() as group:
        for row in rows:
            group.create_task(read(row.task_id))
    if failures:
        raise failures[0]
    return [tasks[row.task_id] for row in rows if row.task_id in tasks]


def _task_from_summary(summary: snapshot_pb2.TaskSummary) -> task_pb2.Task:
    task = task_pb2.Task(id=summary.task_id, context_id=summary.context_id, status=summary.status)
    if summary.HasField("metadata"):
        task.metadata.CopyFrom(summary.metadata)
    set_task_outcome(task)
    return task


def requested_history_length(
    request: a2a_pb2.SendMessageConfiguration | a2a_pb2.GetTaskRequest | a2a_pb2.ListTasksRequest,
) -> int | None:
    """Return the number of history messages that a request limits the task to; None: all."""
    return request.history_length if request.HasField("history_length") else None
