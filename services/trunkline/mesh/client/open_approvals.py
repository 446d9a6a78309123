"""Finds the approvals that wait for a person's decision, on the hosts of a mesh."""

from collections.abc import Callable
from typing import Final, NamedTuple

from trunkline.core.task_states import TERMINAL
from trunkline.errors import PeerError, TaskNotFoundError
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.mesh_tasks import list_host_tasks
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2, task_service_pb2

# An account has few tasks that wait. This bounds the time of one request.
_MAX_TASKS_PER_HOST: Final = 1000
# A task waits for an approval in the first two states, or works on meanwhile.
_STATES: Final = (
    task_pb2.TASK_STATE_INPUT_REQUIRED,
    task_pb2.TASK_STATE_AUTH_REQUIRED,
    task_pb2.TASK_STATE_WORKING,
)


class OpenApproval(NamedTuple):
    """A request that waits, and the task that a person sees: the root of the task that asks."""

    requested: event_pb2.ApprovalRequested
    root: snapshot_pb2.TaskSnapshot

    @property
    def asking_task_id(self) -> str:
        """The id of the task that asks."""
        return self.requested.approval_id.rpartition(".")[0]

    @property
    def waiting_since_ns(self) -> int:
        """The time of the root's state, in nanoseconds since 1970."""
        return self.root.task.status.timestamp.ToNanoseconds()


async def list_open_approvals(
    host: HostClient, account: str, *, may_see: Callable[[str], bool] = lambda _: True
) -> list[OpenApproval]:
    """Return the approvals that the root tasks of an account show as open.

    They are those of a host, and of all hosts that share its store, also of hosts that are gone.
    `may_see` says of the agent of a root task whether its approvals are returned.
    """
    found: list[OpenApproval] = []
    for state in _STATES:
        request = task_service_pb2.ListTasksRequest(account=account, state=state, whole_store=True)
        async for row in list_host_tasks(host, request, limit=_MAX_TASKS_PER_HOST):
            if row.parent_task_id or not may_see(row.agent):
                continue
            try:
                task = await host.get_task(row.task_id, account=account)
            except TaskNotFoundError:
                continue
            found += [
                OpenApproval(approval.requested, task)
                for approval in task.approvals
                if not approval.HasField("answered")
            ]
    return found


async def keep_waiting(
    approvals: list[OpenApproval], account: str, find_host: Callable[[str], HostClient]
) -> list[OpenApproval]:
    """Return the approvals whose asking task has not ended, the longest waiting first.

    A task may end without a notice to its root. A task that can't be read counts as waiting.
    `find_host` returns a client of the host that has a task.
    """
    waiting = [each for each in approvals if await _is_waiting(each, account, find_host)]
    return sorted(waiting, key=lambda approval: approval.waiting_since_ns)


async def _is_waiting(
    approval: OpenApproval, account: str, find_host: Callable[[str], HostClient]
) -> bool:
    task_id = approval.asking_task_id
    if task_id == approval.root.task.id:
        return True
    try:
        task = await find_host(task_id).get_task(task_id, account=account)
    except TaskNotFoundError:
        return False
    except PeerError:
        return True
    return task.task.status.state not in TERMINAL
