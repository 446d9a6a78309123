"""Finds the pending approvals of a mesh, and answers them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import MeshView, open_mesh_view, query_hosts
from trunkline.cli.options import MeshCall
from trunkline.cli.terminal import print_json
from trunkline.core.json_values import struct_json
from trunkline.core.users import User, current_user
from trunkline.errors import ApprovalNotFoundError, TaskNotFoundError
from trunkline.mesh.client.open_approvals import (
    OpenApproval,
    keep_waiting,
    list_open_approvals,
)
from trunkline.tasks.approvals import (
    approval_task_id,
    digest_answer,
    render_arguments,
    render_decision,
)
from trunkline.v1 import event_pb2, snapshot_pb2, task_service_pb2

COLUMNS: Final[Mapping[str, Callable[[OpenApproval], str]]] = {
    "APPROVAL": lambda pending: pending.requested.approval_id,
    "TOOL": lambda pending: pending.requested.tool,
    "ARGUMENTS": lambda pending: render_arguments(pending.requested.arguments),
    "AGENTS": lambda pending: " > ".join(pending.requested.path),
    "TASK": lambda pending: pending.root.task.id,
}
"""The columns of the table."""


async def list_pending(view: MeshView, account: str) -> tuple[list[OpenApproval], ExitCode]:
    """Return the open approvals of an account, the longest waiting first, and the exit code.

    An error of a host is printed to stderr and sets the exit code.
    """
    found, code = await query_hosts(view, lambda host: list_open_approvals(host, account))
    return await keep_waiting(found, account, view.task_host_client), code


async def answer_approval(call: MeshCall, request: task_service_pb2.AnswerApprovalRequest) -> None:
    """Answer an approval, by its id; print the recorded decision.

    Raises:
        ApprovalNotFoundError: there is no such approval.
        ApprovalAnsweredError: it has a different answer.
        TaskEndedError: its task has ended.
        PeerUnavailableError: no mesh or no host of the task answers.
    """
    request.account = call.account
    request.task_id = approval_task_id(request.approval_id)
    async with open_mesh_view(call.mesh, is_traced=True) as view:
        try:
            host = view.task_host_client(request.task_id)
            task = await host.get_task(request.task_id, account=request.account)
            _note_approved(request, task)
            approval = (await host.tasks.AnswerApproval(request)).approval
        except TaskNotFoundError:
            raise ApprovalNotFoundError(request.approval_id) from None
    recorded = render_decision(approval.answered.decision)
    if call.json:
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


def to_fields(pending: OpenApproval) -> dict[str, Any]:
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
