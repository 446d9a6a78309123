"""Selects the latest tasks of a mesh, follows how they change, and prints them."""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from trunkline.cli.directory import query_hosts
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import choose
from trunkline.cli.terminal import paint_state, print_json, print_list
from trunkline.cli.times import time_cell
from trunkline.core.task_states import state_name
from trunkline.mesh.client import Directory, HostClient
from trunkline.mesh.client.mesh_tasks import list_host_tasks, watch_mesh_tasks
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2

_STATES: Final = {
    state_name(state): state
    for state in task_pb2.TaskState.values()
    if state != task_pb2.TASK_STATE_UNSPECIFIED
}
# The tasks whose latest status is remembered, so that none is printed twice.
_MAX_SEEN: Final = 10_000
# The columns of the table. The page has the same words.
COLUMNS: Final[Mapping[str, Callable[[snapshot_pb2.TaskSummary], str]]] = {
    "TASK": lambda task: task.task_id,
    "AGENT": lambda task: task.agent,
    "STATE": lambda task: state_name(task.status.state),
    "SINCE": lambda task: time_cell(task.status.timestamp),
    "PARENT": lambda task: task.parent_task_id,
}


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Selects the tasks of an account. Empty values match all."""

    account: str
    agent: str
    context_id: str
    limit: int
    state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_UNSPECIFIED
    since: datetime | None = None
    """Only tasks whose status is from this time or later."""

    @property
    def has_filters(self) -> bool:
        """True if it leaves out tasks of the account."""
        return bool(self.agent or self.context_id or self.state or self.since)

    def matches(self, task: snapshot_pb2.TaskSummary) -> bool:
        """Return whether a task is selected."""
        return (
            self.agent in ("", task.agent)
            and self.context_id in ("", task.context_id)
            and self.state in (task_pb2.TASK_STATE_UNSPECIFIED, task.status.state)
            and (self.since is None or task.status.timestamp.ToDatetime(UTC) >= self.since)
        )

    def build_request(self) -> task_service_pb2.ListTasksRequest:
        """Return the request to a host, without the size of a page."""
        request = task_service_pb2.ListTasksRequest(
            account=self.account, agent=self.agent, context_id=self.context_id, state=self.state
        )
        if self.since is not None:
            request.status_after.FromDatetime(self.since)
        return request


def parse_state(state: str) -> task_pb2.TaskState.ValueType:
    """Return the state of a name, and for "" the unspecified one.

    Raises:
        InvalidArgumentError: there is no such state.
    """
    return choose("--state", state, _STATES) if state else task_pb2.TASK_STATE_UNSPECIFIED


async def follow_tasks(
    directory: Directory, query: TaskQuery
) -> AsyncGenerator[list[snapshot_pb2.TaskSummary]]:
    """Yield the latest tasks, and then those with a new status, oldest first."""
    seen: dict[str, int] = {}
    async with watch_mesh_tasks(directory, query.account) as watch:
        current, _ = await fetch_tasks(directory, query)
        while True:
            fresh = [task for task in current if seen.get(task.task_id, -1) < _time_ns(task)]
            fresh.sort(key=_time_ns)
            seen.update((task.task_id, _time_ns(task)) for task in fresh)
            while len(seen) > _MAX_SEEN:
                del seen[next(iter(seen))]
            if fresh:
                yield fresh
            tasks, is_incomplete = await watch.take()
            current = [task for task in tasks if query.matches(task)]
            if is_incomplete:
                latest, _ = await fetch_tasks(directory, query)
                current += latest


async def fetch_tasks(
    directory: Directory, query: TaskQuery
) -> tuple[list[snapshot_pb2.TaskSummary], ExitCode]:
    """Return the latest tasks of all hosts, newest status first, and the exit code.

    An error of a host is printed to stderr and sets the exit code.
    """
    request = query.build_request()
    request.whole_store = True

    async def read(host: HostClient) -> list[snapshot_pb2.TaskSummary]:
        return [task async for task in list_host_tasks(host, request, limit=query.limit)]

    tasks, code = await query_hosts(directory, read)
    tasks.sort(key=_time_ns, reverse=True)
    return tasks[: query.limit], code


def print_tasks(tasks: Sequence[snapshot_pb2.TaskSummary], *, empty: str, as_json: bool) -> None:
    """Print tasks as a table; a terminal without tasks shows `empty`."""
    print_list(tasks, COLUMNS, _task_json, as_json=as_json, optional=("PARENT",), empty=empty)


def print_change(task: snapshot_pb2.TaskSummary, *, as_json: bool) -> None:
    """Print a task with a new status, on a line."""
    if as_json:
        print_json(_task_json(task))
        return
    time = task.status.timestamp.ToDatetime().strftime("%H:%M:%S")
    state = paint_state(f"{state_name(task.status.state):<14}", sys.stdout)
    print(f"{time}  {task.task_id}  {state}  {task.agent}", flush=True)


def _task_json(task: snapshot_pb2.TaskSummary) -> dict[str, str]:
    return {
        "task_id": task.task_id,
        "context_id": task.context_id,
        "agent": task.agent,
        "state": state_name(task.status.state),
        "status_time": task.status.timestamp.ToJsonString(),
        "create_time": task.create_time.ToJsonString(),
        "parent_task_id": task.parent_task_id,
    }


def _time_ns(task: snapshot_pb2.TaskSummary) -> int:
    return task.status.timestamp.ToNanoseconds()
