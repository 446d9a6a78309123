"""`trunkline approvals`, `approve` and `reject`: lists pending approvals and answers them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import MeshView, open_mesh_view, query_hosts
from trunkline.cli.terminal import print_json, print_table
from trunkline.client import HostClient
from trunkline.errors import ApprovalNotFoundError, ConfigurationError, PeerError, TaskNotFoundError
from trunkline.json_values import struct_json
from trunkline.tasks.approvals import (
    approval_task_id,
    digest_answer,
    parse_arguments,
    pending_approvals,
    render_arguments,
    render_decision,
)
from trunkline.tasks.lifecycle import TERMINAL
from trunkline.users import User, current_user
from trunkline.v1 import event_pb2, json_pb2, snapshot_pb2, task_pb2, task_service_pb2

_PAGE_SIZE: Final = 100
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


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """A person's answer to an approval."""

    approval_id: str
    decision: event_pb2.ApprovalDecision.ValueType
    account: str
    reason: str = ""
    edit: str = ""
    """Changed arguments, as JSON; "" leaves them unchanged."""


def build_approval(approval_id: str, *, account: str, reason: str, edit: str) -> DecisionRequest:
    """Build the decision to approve a call, with changed arguments if `edit` has some."""
    return DecisionRequest(approval_id, event_pb2.APPROVAL_DECISION_APPROVED, account, reason, edit)


def build_rejection(approval_id: str, *, account: str, reason: str) -> DecisionRequest:
    """Build the decision to reject a call."""
    return DecisionRequest(approval_id, event_pb2.APPROVAL_DECISION_REJECTED, account, reason)


async def list_approvals(mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Print the pending approvals of an account.

    They are sorted by the time at which their root task reached its state, oldest first. An error
    of a host is printed to stderr and sets the exit code.
    """
    async with open_mesh_view(mesh) as view:
        approvals, code = await query_hosts(view, lambda host: _list_on_host(host, account))
        pending = [
            approval for approval in approvals if await _is_still_waiting(view, approval, account)
        ]
    pending.sort(key=lambda approval: approval.root.task.status.timestamp.ToNanoseconds())
    if as_json:
        print_json([_as_json(approval) for approval in pending])
        return code
    rows = [
        (
            approval.requested.approval_id,
            approval.requested.tool,
            render_arguments(approval.requested.arguments),
            " > ".join(approval.requested.path),
            approval.root.task.id,
        )
        for approval in pending
    ]
    empty = "no tool call waits for approval"
    print_table(("APPROVAL", "TOOL", "ARGUMENTS", "AGENTS", "TASK"), rows, empty=empty)
    return code


async def answer_approval(
    mesh: str | None, decision: DecisionRequest, *, as_json: bool
) -> ExitCode:
    """Answer an approval; print the recorded decision.

    Raises:
        ApprovalNotFoundError: there is no such approval.
        ApprovalAnsweredError: it has a different answer.
        TaskEndedError: its task has ended.
        ConfigurationError: the changed arguments are not a JSON object.
        PeerUnavailableError: no mesh or no host of the task answers.
    """
    request = task_service_pb2.AnswerApprovalRequest(
        task_id=approval_task_id(decision.approval_id),
        account=decision.account,
        approval_id=decision.approval_id,
        decision=decision.decision,
        reason=decision.reason,
    )
    if decision.edit:
        request.decision = event_pb2.APPROVAL_DECISION_EDITED
        request.arguments.CopyFrom(_parse_edit(decision.edit))
    async with open_mesh_view(mesh, is_traced=True) as view:
        try:
            host = view.task_host_client(request.task_id)
            task = await host.get_task(request.task_id, account=request.account)
            _note_approved(request, task)
            approval = await host.answer_approval(request)
        except TaskNotFoundError:
            raise ApprovalNotFoundError(decision.approval_id) from None
    recorded = render_decision(approval.answered.decision)
    if as_json:
        print_json({"approval_id": decision.approval_id, "decision": recorded})
    else:
        print(f"{decision.approval_id}: {recorded}")
    return ExitCode.OK


def _note_approved(
    request: task_service_pb2.AnswerApprovalRequest, task: snapshot_pb2.TaskSnapshot
) -> None:
    """Name the call that an answer approves in the statement that this process signs."""
    answer = event_pb2.ApprovalAnswered(decision=request.decision, arguments=request.arguments)
    for approval in task.approvals:
        if approval.requested.approval_id == request.approval_id:
            digest = digest_answer(approval.requested, answer)
            current_user.set(User(task.account, approved=frozenset({digest} - {""})))


def _parse_edit(text: str) -> json_pb2.Struct:
    try:
        return parse_arguments(text)
    except ValueError:
        problem = 'must be a JSON object, such as {"count": 1}'
        raise ConfigurationError("--edit", problem) from None


async def _list_on_host(host: HostClient, account: str) -> list[PendingApproval]:
    """Return the approvals that an account's root tasks on a host show as pending."""
    return [
        PendingApproval(approval.requested, task)
        async for task in _list_open_root_tasks(host, account)
        for approval in pending_approvals(task.approvals)
    ]


async def _list_open_root_tasks(
    host: HostClient, account: str
) -> AsyncIterator[snapshot_pb2.TaskSnapshot]:
    for state in _UNFINISHED_STATES:
        request = task_service_pb2.ListTasksRequest(
            account=account, state=state, page_size=_PAGE_SIZE
        )
        while True:
            page = await host.list_tasks(request)
            for row in page.tasks:
                if not row.parent_task_id:
                    yield await host.get_task(row.task_id, account=account)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token


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


def _as_json(pending: PendingApproval) -> dict[str, Any]:
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
