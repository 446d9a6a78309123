"""The commands for approvals: they list the tool calls that wait, and answer them."""

from typing import TYPE_CHECKING, Annotated

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import ApprovalIdArgument, MeshCall, argument, option
from trunkline.cli.terminal import print_json, print_list
from trunkline.errors import ApprovalNotFoundError, ConfigurationError, TaskNotFoundError

if TYPE_CHECKING:
    from trunkline.mesh.client.open_approvals import OpenApproval
    from trunkline.v1 import snapshot_pb2, task_service_pb2


async def approvals(call: MeshCall) -> ExitCode:
    """List the tool calls that wait for approval."""
    from trunkline.cli.directory import open_directory, query_hosts
    from trunkline.mesh.client.open_approvals import keep_waiting, list_open_approvals
    from trunkline.tasks.approvals import render_arguments

    async with open_directory(call.mesh) as directory:
        found, code = await query_hosts(
            directory, lambda host: list_open_approvals(host, call.account)
        )
        # The longest waiting comes first.
        pending = await keep_waiting(found, call.account, directory.client_for_task)
    print_list(
        pending,
        {
            "APPROVAL": lambda each: each.requested.approval_id,
            "TOOL": lambda each: each.requested.tool,
            "ARGUMENTS": lambda each: render_arguments(each.requested.arguments),
            "AGENTS": lambda each: " > ".join(each.requested.path),
            "TASK": lambda each: each.root.task.id,
        },
        _to_fields,
        as_json=call.json,
        empty="no tool call waits for approval",
    )
    return code


async def approve(
    approval_id: ApprovalIdArgument,
    *,
    edit: Annotated[str, option("JSON", "Call it with these arguments.")] = "",
    reason: Annotated[str, option("TEXT", "Why.")] = "",
    call: MeshCall,
) -> None:
    """Approve a tool call that waits."""
    from trunkline.tasks.approvals import parse_arguments
    from trunkline.v1 import event_pb2, task_service_pb2

    request = task_service_pb2.AnswerApprovalRequest(
        approval_id=approval_id, decision=event_pb2.APPROVAL_DECISION_APPROVED, reason=reason
    )
    if edit:
        request.decision = event_pb2.APPROVAL_DECISION_EDITED
        try:
            request.arguments.CopyFrom(parse_arguments(edit))
        except ValueError:
            problem = 'must be a JSON object, such as {"count": 1}'
            raise ConfigurationError("--edit", problem) from None
    await _answer(call, request)


async def reject(
    approval_id: ApprovalIdArgument,
    reason: Annotated[str, argument("REASON", "Why.")] = "",
    *,
    call: MeshCall,
) -> None:
    """Reject a tool call that waits. Its agent continues without it."""
    from trunkline.v1 import event_pb2, task_service_pb2

    request = task_service_pb2.AnswerApprovalRequest(
        approval_id=approval_id, decision=event_pb2.APPROVAL_DECISION_REJECTED, reason=reason
    )
    await _answer(call, request)


async def _answer(call: MeshCall, request: "task_service_pb2.AnswerApprovalRequest") -> None:
    """Answer an approval, by its id; print the recorded decision.

    Raises:
        ApprovalNotFoundError: there is no such approval.
        ApprovalAnsweredError: it has a different answer.
        TaskEndedError: its task has ended.
        PeerUnavailableError: no mesh or no host of the task answers.
    """
    from trunkline.cli.directory import open_directory
    from trunkline.tasks.approvals import approval_task_id, render_decision

    request.account = call.account
    request.task_id = approval_task_id(request.approval_id)
    async with open_directory(call.mesh, is_traced=True) as directory:
        try:
            host = directory.client_for_task(request.task_id)
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
    request: "task_service_pb2.AnswerApprovalRequest", task: "snapshot_pb2.TaskSnapshot"
) -> None:
    """Name the call that an answer approves in the statement that this process signs."""
    from trunkline.core.users import User, current_user
    from trunkline.tasks.approvals import digest_answer
    from trunkline.v1 import event_pb2

    answer = event_pb2.ApprovalAnswered(decision=request.decision, arguments=request.arguments)
    for approval in task.approvals:
        if approval.requested.approval_id == request.approval_id:
            digest = digest_answer(approval.requested, answer)
            current_user.set(User(task.account, approved=frozenset({digest} - {""})))


def _to_fields(pending: "OpenApproval") -> dict[str, object]:
    """Return an approval as JSON."""
    from trunkline.core.json_values import struct_json

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
