"""The commands that show tasks, follow them and cancel them."""

from typing import Annotated

import typer

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.cli.exits import run
from trunkline.cli.options import AccountOption, JsonOption, MeshOption, TaskIdArgument

# Not read from the contract, because protobuf is slow to import.
_STATES = (
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "rejected",
    "canceled",
)  # fmt: skip


def tasks(
    mesh: MeshOption = None,
    *,
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE",
            help="Only in this state: working, input-required, completed, failed, ….",
            show_default=False,
            autocompletion=lambda: list(_STATES),
        ),
    ] = "",
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="Only of this agent.", show_default=False)
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="ID", help="Only of this context.", show_default=False)
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Only with a status since then: 90s, 30m, 12h, 7d or a date.",
            show_default=False,
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print each new status, until Ctrl-C.")
    ] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="The maximum number of tasks.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """List the latest tasks."""
    from trunkline.cli import task_list as command

    async def list_tasks() -> int:
        query = command.parse_query(
            account=account,
            agent=agent,
            context_id=context,
            state=state,
            since=since,
            limit=limit,
        )
        return await command.list_tasks(mesh, query, follows=follow, as_json=json)

    run(list_tasks())


def task(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show a task: its question, state, route, calls of models and tools, and artifacts."""
    from trunkline.cli import task_view as command

    run(command.show_task(task_id, mesh, account=account, as_json=json))


def watch(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show what happens in a task until its turn ends. Exits as `ask` does."""
    from trunkline.cli import task_events as command

    run(command.watch_task(task_id, mesh, account=account, as_json=json))


def events(
    task_id: Annotated[
        str, typer.Argument(metavar="TASK", help="Its id. [all tasks]", show_default=False)
    ] = "",
    mesh: MeshOption = None,
    *,
    wire: Annotated[
        str,
        typer.Option(
            metavar="VERSION",
            help="Show the events that clients of A2A get: v1, v0.3 or original.",
            show_default=False,
            autocompletion=lambda: ["v1", "v0.3", "original"],
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also show later events, until the turn ends.")
    ] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show the journal of a task, event by event. With --json, a line of JSON for each.

    Without a TASK, show the events of all tasks as they happen, until Ctrl-C.
    """
    if task_id:
        from trunkline.cli import task_events as command

        run(
            command.show_events(
                task_id, mesh, account=account, wire=wire, follows=follow, as_json=json
            )
        )
    from trunkline.cli import all_events

    run(all_events.follow_events(mesh, account=account, wire=wire, as_json=json))


def cancel(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Cancel a task and its children."""
    from trunkline.cli import task_view as command

    run(command.cancel_task(task_id, mesh, account=account, as_json=json))


def top(
    mesh: MeshOption = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Show it once, as to a pipe.")] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show agents, who calls whom, running tasks and hosts, live.

    With --json, a line for each change, until Ctrl-C.
    """
    from trunkline.cli import top as command

    run(command.show_top(mesh, account=account, once=once, as_json=json))
