"""Pages of an agent's tasks."""

import asyncio
from collections.abc import Sequence

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import HostClient
from trunkline.errors import TaskNotFoundError, TrunklineError
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2
from trunkline_bridge.inbound.caller import Caller
from trunkline_bridge.inbound.operations.tasks import history_length_of
from trunkline_bridge.projection import Links, project_task

# Tasks of one page that are read at the same time.
_READS_AT_ONCE = 8


async def list_tasks(
    client: HostClient, caller: Caller, request: a2a_pb2.ListTasksRequest, links: Links
) -> a2a_pb2.ListTasksResponse:
    """Return a page of the agent's tasks on a host; they are read whole only if that is asked."""
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
    if request.include_artifacts or request.history_length > 0:
        response.tasks.extend(await _read_tasks(client, caller, request, page.tasks, links))
    else:
        response.tasks.extend(links.show_task(_row(summary)) for summary in page.tasks)
    return response


async def _read_tasks(
    client: HostClient,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    rows: Sequence[snapshot_pb2.TaskSummary],
    links: Links,
) -> Sequence[task_pb2.Task]:
    """Read the tasks of a page whole, in its order; those that have gone meanwhile are left out."""
    found: dict[str, task_pb2.Task] = {}
    failures: list[TrunklineError] = []
    turns = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(task_id: str) -> None:
        async with turns:
            try:
                snapshot = await client.get_task(task_id, account=caller.account)
            except TaskNotFoundError:
                return
            except TrunklineError as error:
                # Out of the group it would come wrapped, and the others would be lost all the same.
                failures.append(error)
                return
        found[task_id] = project_task(
            snapshot,
            history_length=history_length_of(request),
            include_artifacts=request.include_artifacts,
            links=links,
        )

    async with asyncio.TaskGroup() as group:
        for row in rows:
            group.create_task(read(row.task_id))
    if failures:
        raise failures[0]
    return [found[row.task_id] for row in rows if row.task_id in found]


def _row(summary: snapshot_pb2.TaskSummary) -> task_pb2.Task:
    task = task_pb2.Task(id=summary.task_id, context_id=summary.context_id, status=summary.status)
    if summary.HasField("metadata"):
        task.metadata.CopyFrom(summary.metadata)
    return task
