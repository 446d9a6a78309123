"""The commands that inspect a mesh: agents, approvals, traces, webhooks."""

from enum import StrEnum
from typing import Annotated

import typer

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.cli.exits import finish, run
from trunkline.cli.options import (
    AccountOption,
    ApprovalIdArgument,
    DataOption,
    JsonOption,
    MeshOption,
    TaskIdArgument,
)


def agents(mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """List the agents on the mesh."""
    from trunkline.cli import inspect as command

    run(command.list_agents(mesh, as_json=json))


def approvals(
    mesh: MeshOption = None, *, account: AccountOption = ANONYMOUS_ACCOUNT, json: JsonOption = False
) -> None:
    """List the tool calls that wait for approval."""
    from trunkline.cli import approvals as command

    run(command.list_approvals(mesh, account=account, as_json=json))


def approve(
    approval_id: ApprovalIdArgument,
    mesh: MeshOption = None,
    *,
    edit: Annotated[
        str,
        typer.Option(metavar="JSON", help="Call it with these arguments.", show_default=False),
    ] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.", show_default=False)] = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Approve a tool call that waits."""
    from trunkline.cli import approvals as command

    request = command.build_approval(approval_id, account=account, reason=reason, edit=edit)
    run(command.answer_approval(mesh, request, as_json=json))


def reject(
    approval_id: ApprovalIdArgument,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why.", show_default=False)] = "",
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Reject a tool call that waits. Its agent continues without it."""
    from trunkline.cli import approvals as command

    request = command.build_rejection(approval_id, account=account, reason=reason)
    run(command.answer_approval(mesh, request, as_json=json))


def trace(
    trace_or_task_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a trace or a task.", show_default=False)
    ] = "",
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show a trace as a tree of spans. Without an ID, list the latest traces."""
    from trunkline.cli import trace as command

    if trace_or_task_id:
        run(command.show_trace(trace_or_task_id, mesh, as_json=json))
    else:
        run(command.list_traces(mesh, as_json=json))


webhooks = typer.Typer(help="Show the delivery of webhooks, and repeat what failed.")


class WebhookState(StrEnum):
    """States of webhooks. Not read from the contract, because protobuf is slow to import."""

    IDLE = "idle"
    PENDING = "pending"
    WAITING = "waiting"
    DEAD = "dead"
    DONE = "done"


ConfigId = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="Its id. [all of the task]", show_default=False)
]


@webhooks.command("list")
def webhooks_list(
    mesh: MeshOption = None,
    *,
    state: Annotated[
        WebhookState | None,
        typer.Option(
            metavar="STATE",
            help="Only in this state: idle, pending, waiting, dead or done.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the webhooks of all hosts, newest first."""
    from trunkline.cli import webhooks as command

    run(command.list_webhooks(mesh, state=state or "", as_json=json))


@webhooks.command("show")
def webhooks_show(
    task_id: TaskIdArgument,
    config_id: ConfigId = "",
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show the delivery of a task's webhooks. Exits 1 if there are none."""
    from trunkline.cli import webhooks as command

    run(command.show_webhooks(task_id, config_id, mesh, as_json=json))


@webhooks.command("replay")
def webhooks_replay(
    task_id: TaskIdArgument,
    config_id: ConfigId = "",
    mesh: MeshOption = None,
    *,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Send all events again, also delivered ones.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Send failed events again, after the last event that arrived."""
    from trunkline.cli import webhooks as command

    run(command.replay_webhooks(task_id, config_id, mesh, from_start=from_start, as_json=json))


@webhooks.command("secret")
def webhooks_secret(data: DataOption = None) -> None:
    """Print the secret that signs posts, for the receivers that verify them."""
    from trunkline.cli import webhooks as command

    finish(lambda: command.print_secret(data))
