"""The page's view of approvals: the calls of the caller's tasks that wait for a decision."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple

from trunkline.a2a_wire.json_values import Json
from trunkline.core.json_values import struct_json
from trunkline.core.task_states import TERMINAL
from trunkline.errors import PeerError, TaskNotFoundError
from trunkline.mesh.client import Directory, HostClient
from trunkline.mesh.client.mesh_tasks import watch_mesh_tasks
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2, task_service_pb2
from trunkline_bridge.api.page.access import may_use
from trunkline_bridge.api.page.binding import API_PATH, PageEvent, PageEvents, PageStreams, Paths
from trunkline_bridge.api.page.host_queries import query_hosts
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.handler import Response

_PATH: Final = f"{API_PATH}/approvals"
_INTERVAL_S: Final = 1.0
# Every open page follows the approvals. Of a busy account, reading them takes at most this share of
# the time.
_READING_SHARE: Final = 0.1
_PAGE_SIZE: Final = 100
# An account has few tasks that wait. This bounds the time of one request.
_MAX_TASKS_PER_HOST: Final = 1000
# A task waits for an approval in the first state, or works on meanwhile.
_STATES: Final = (
    task_pb2.TASK_STATE_INPUT_REQUIRED,
    task_pb2.TASK_STATE_AUTH_REQUIRED,
    task_pb2.TASK_STATE_WORKING,
)


class OpenApproval(NamedTuple):
    """A request that waits, and the task that a person sees: the root of the task that asks."""

    requested: event_pb2.ApprovalRequested
    root: snapshot_pb2.TaskSnapshot


class PageApprovals:
    """The open approvals of an account."""

    def __init__(self, directory: Directory, streams: PageStreams) -> None:
        self._directory = directory
        self._streams = streams

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {_PATH: {"GET": self._list_approvals}, f"{_PATH}:watch": {"GET": self._watch}}

    async def _list_approvals(
        self, caller: Caller, _params: Json, _path: Mapping[str, str]
    ) -> Json:
        return await self._read_open(caller)

    async def _watch(self, caller: Caller, _params: Json, _path: Mapping[str, str]) -> Response:
        """Stream all open approvals, at the start and after changes, at most one event a second.

        There are fewer if the account has so many open tasks that reading them takes long.
        """
        return self._streams.respond(caller, self._open_changes(caller))

    @asynccontextmanager
    async def _open_changes(self, caller: Caller) -> AsyncIterator[PageEvents]:
        async with watch_mesh_tasks(self._directory, caller.account) as watch:

            async def read(current: Json) -> PageEvents:
                pause_s = _INTERVAL_S
                while True:
                    yield (PageEvent("approvals", current),)
                    last = current
                    while current == last:
                        await asyncio.sleep(pause_s)
                        await watch.take()
                        began_s = time.monotonic()
                        current = await self._read_open(caller)
                        took_s = time.monotonic() - began_s
                        pause_s = max(_INTERVAL_S, took_s / _READING_SHARE)

            async with aclosing(read(await self._read_open(caller))) as events:
                yield events

    async def _read_open(self, caller: Caller) -> Json:
        """Return the open approvals of the caller's tasks, the longest waiting first."""
        found = await query_hosts(self._directory, lambda host: self._list_on_host(host, caller))
        waiting = [approval for approval in found.items if await self._is_waiting(approval, caller)]
        waiting.sort(key=lambda item: item.root.task.status.timestamp.ToNanoseconds())
        return {
            "approvals": [_approval_json(approval) for approval in waiting],
            "isIncomplete": found.is_incomplete,
        }

    async def _list_on_host(self, host: HostClient, caller: Caller) -> list[OpenApproval]:
        approvals: list[OpenApproval] = []
        async for row in _list_open_roots(host, caller.account):
            if not may_use(caller, row.agent, "GetTask"):
                continue
            try:
                task = await host.get_task(row.task_id, account=caller.account)
            except TaskNotFoundError:
                continue
            approvals += [
                OpenApproval(approval.requested, task)
                for approval in task.approvals
                if not approval.HasField("answered")
            ]
        return approvals

    async def _is_waiting(self, approval: OpenApproval, caller: Caller) -> bool:
        """Return whether the asking task still waits, because it may have ended without a notice.

        A task that can't be read counts as waiting.
        """
        task_id = approval.requested.approval_id.rpartition(".")[0]
        if task_id == approval.root.task.id:
            return True
        try:
            client = self._directory.client_for_task(task_id)
            task = await client.get_task(task_id, account=caller.account)
        except TaskNotFoundError:
            return False
        except PeerError:
            return True
        return task.task.status.state not in TERMINAL


async def _list_open_roots(
    host: HostClient, account: str
) -> AsyncIterator[snapshot_pb2.TaskSummary]:
    """Yield the unfinished tasks of an account on a host that no other task has called."""
    count = 0
    for state in _STATES:
        request = task_service_pb2.ListTasksRequest(
            account=account, state=state, page_size=_PAGE_SIZE
        )
        while count < _MAX_TASKS_PER_HOST:
            page = await host.tasks.ListTasks(request)
            count += len(page.tasks)
            for row in page.tasks:
                if not row.parent_task_id:
                    yield row
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token


def _approval_json(approval: OpenApproval) -> Json:
    requested, root = approval
    return {
        "taskId": root.task.id,
        "contextId": root.task.context_id,
        "agent": root.agent,
        "approvalId": requested.approval_id,
        "tool": requested.tool,
        "arguments": struct_json(requested.arguments),
        "path": list(requested.path),
        "createdAt": root.task.status.timestamp.ToJsonString(),
    }
