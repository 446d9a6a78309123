"""Finds the pending approvals of a mesh, and answers them."""

from dataclasses import dataclass
from typing import Any, Final

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import MeshView, list_host_tasks, open_mesh_view, query_hosts
from trunkline.cli.terminal import print_json
from trunkline.core.json_values import struct_json
from trunkline.core.users import User, current_user
from trunkline.errors import ApprovalNotFoundError, PeerError, TaskNotFoundError
from trunkline.mesh.client import HostClient
from trunkline.tasks.approvals import (
    approval_task_id,
    digest_answer,
    pending_approvals,
    render_decision,
)
from trunkline.tasks.lifecycle import TERMINAL
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2, task_service_pb2

_UNFINISHED_STATES: Final = (
    task_pb2.TASK_STATE_INPUT_REQUIRED,
    task_pb2.TASK_STATE_AUTH_REQUIRED,
    task_pb2.TASK_STATE_WORKING,
)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A pending approval, and the root task of the task that requested it."""

    requested: event_pb2.ApprovalRequested
    root: snapshot_pb2.TaskSnapshot


async def list_pending(view: MeshView, account: str) -> tuple[list[PendingApproval], ExitCode]:
    """Return the pending approvals of an account, and the exit code.

    They are sorted by the time at which their root task reached its state, oldest first. An error
    of a host is printed to stderr and sets the exit code.
    """
    found, code = await query_hosts(view, lambda host: _list_on_host(host, account))
    pending = [approval for approval in found if await _is_still_waiting(view, approval, account)]
    pending.sort(key=lambda approval: approval.root.task.status.timestamp.ToNanoseconds())
    return pending, code


async def answer_approval(
    mesh: str | None, request: task_service_pb2.AnswerApprovalRequest, *, as_json: bool
) -> None:
    """Answer an approval, by its id; print the recorded decision.

    Raises:
        ApprovalNotFoundError: there is no such approval.
        ApprovalAnsweredError: it has a different answer.
        TaskEndedError: its task has ended.
        PeerUnavailableError: no mesh or no host of the task answers.
    """
    request.task_id = approval_task_id(request.approval_id)
    async with open_mesh_view(mesh, is_traced=True) as view:
        try:
            host = view.task_host_client(request.task_id)
            task = await host.get_task(request.task_id, account=request.account)
            _note_approved(request, task)
            approval = (await host.tasks.AnswerApproval(request)).approval
        except TaskNotFoundError:
            raise ApprovalNotFoundError(request.approval_id) from None
    recorded = render_decision(approval.answered.decision)
    if as_json:
        print_json({"approval_id": request.approval_id, "decision": recorded})
    else:
        print(f"{request.approval_id}: {recorded}")


def _note_approved(
    request: task_service_pb2.AnswerApprovalRequest, task: snapshot_pb2.TaskSnapshot
) -> None:
    """Name the call that an answer approves in the statement that this process signs."""
    answer = event_pb2.ApprovalAnswered(decision=request.decision, arguments=request.arguments)
    for approval in task.approvals:
        if approval.requested.approval_id == request.approval_id:
            digest = digest_answer(approval.requested, answer)
            current_user.set(User(task.account, approved=frozenset({digest} - {""})))


async def _list_on_host(host: HostClient, account: str) -> list[PendingApproval]:
    """Return the approvals that an account's root tasks on a host show as pending."""
    found: list[PendingApproval] = []
    for state in _UNFINISHED_STATES:
        request = task_service_pb2.ListTasksRequest(account=account, state=state)
        async for row in list_host_tasks(host, request):
            if row.parent_task_id:
                continue
            task = await host.get_task(row.task_id, account=account)
            pending = pending_approvals(task.approvals)
            found += [PendingApproval(approval.requested, task) for approval in pending]
    return found


async def _is_still_waiting(view: MeshView, pending: PendingApproval, account: str) -> bool:
    """Return whether the requesting task still waits. It may have ended without its root's notice.

    A task that can't be read counts as waiting.
    """
    task_id = approval_task_id(pending.requested.approval_id)
    if task_id == pending.root.task.id:
        return True
    try:
        task = await view.task_host_client(task_id).get_task(task_id, account=account)
    except TaskNotFoundError:
        return False
    except PeerError:
        return True
    return task.task.status.state not in TERMINAL


def to_fields(pending: PendingApproval) -> dict[str, Any]:
    """Return an approval as JSON."""
    requested = pending.requested
    return {
        "approval_id": requested.approval_id,
        "tool": requested.tool,
        "arguments": struct_json(requested.arguments),
        "path": list(requested.path),
        "task_id": pending.root.task.id,
        "agent": pending.root.agent,
        "context_id": pending.root.task.context_id,
        "status_time": pending.root.task.status.timestamp.ToJsonString(),
    }
