"""The page's view of approvals: the calls of the caller's tasks that wait for a decision."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from trunkline.a2a_wire.json_values import Json
from trunkline.core.json_values import struct_json
from trunkline.mesh.client import Directory
from trunkline.mesh.client.host_queries import query_hosts
from trunkline.mesh.client.mesh_tasks import watch_mesh_tasks
from trunkline.mesh.client.open_approvals import (
    OpenApproval,
    keep_waiting,
    list_open_approvals,
)
from trunkline_bridge.api.page.access import may_use
from trunkline_bridge.api.page.binding import API_PATH, PageEvent, PageStreams, Paths
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.handler import Response

_PATH: Final = f"{API_PATH}/approvals"
_INTERVAL_S: Final = 1.0
# Every open page follows the approvals. Of a busy account, reading them takes at most this share of
# the time.
_READING_SHARE: Final = 0.1


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
        return self._streams.respond(caller, self._changes(caller))

    async def _changes(self, caller: Caller) -> AsyncGenerator[PageEvent, None]:
        async with watch_mesh_tasks(self._directory, caller.account) as watch:
            current = await self._read_open(caller)
            pause_s = _INTERVAL_S
            while True:
                yield PageEvent("approvals", current)
                last = current
                while current == last:
                    await asyncio.sleep(pause_s)
                    await watch.take()
                    began_s = time.monotonic()
                    current = await self._read_open(caller)
                    took_s = time.monotonic() - began_s
                    pause_s = max(_INTERVAL_S, took_s / _READING_SHARE)

    async def _read_open(self, caller: Caller) -> Json:
        """Return the open approvals of the caller's tasks, the longest waiting first."""
        directory = self._directory
        found = await query_hosts(
            directory,
            lambda host: list_open_approvals(
                host, caller.account, may_see=lambda agent: may_use(caller, agent, "GetTask")
            ),
            one_per_store=True,
        )
        approvals = [approval for answer in found.answers for approval in answer]
        waiting = await keep_waiting(approvals, caller.account, directory.client_for_task)
        return {
            "approvals": [_approval_json(approval) for approval in waiting],
            "isIncomplete": bool(found.failures or directory.missing_hosts),
        }


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
