"""The commands for approvals: they list the tool calls that wait, and answer them."""

from typing import Annotated

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import ApprovalIdArgument, MeshCall, argument, option
from trunkline.cli.terminal import print_list
from trunkline.errors import ConfigurationError


async def approvals(call: MeshCall) -> ExitCode:
    """List the tool calls that wait for approval."""
    from trunkline.cli.approvals import COLUMNS, list_pending, to_fields
    from trunkline.cli.mesh_view import open_mesh_view

    async with open_mesh_view(call.mesh) as view:
        pending, code = await list_pending(view, call.account)
    empty = "no tool call waits for approval"
    print_list(pending, COLUMNS, to_fields, as_json=call.json, empty=empty)
    return code


async def approve(
    approval_id: ApprovalIdArgument,
    *,
    edit: Annotated[str, option("JSON", "Call it with these arguments.")] = "",
    reason: Annotated[str, option("TEXT", "Why.")] = "",
    call: MeshCall,
) -> None:
    """Approve a tool call that waits."""
    from trunkline.cli.approvals import answer_approval
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
    await answer_approval(call, request)


async def reject(
    approval_id: ApprovalIdArgument,
    reason: Annotated[str, argument("REASON", "Why.")] = "",
    *,
    call: MeshCall,
) -> None:
    """Reject a tool call that waits. Its agent continues without it."""
    from trunkline.cli.approvals import answer_approval
    from trunkline.v1 import event_pb2, task_service_pb2

    request = task_service_pb2.AnswerApprovalRequest(
        approval_id=approval_id, decision=event_pb2.APPROVAL_DECISION_REJECTED, reason=reason
    )
    await answer_approval(call, request)
