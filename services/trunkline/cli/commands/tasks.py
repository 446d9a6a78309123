"""The commands that show tasks, follow them and cancel them."""

import sys
from contextlib import aclosing
from typing import Annotated

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    AccountOption,
    JsonOption,
    MeshOption,
    TaskIdArgument,
    argument,
    flag,
    option,
)
from trunkline.cli.terminal import is_interactive, print_json
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import InvalidArgumentError

_NO_TASKS = "no tasks yet; `trunkline ask` makes one"
# Not read from the contract, because protobuf is slow to import.
_STATES = (
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "rejected",
    "canceled",
)  # fmt: skip


async def tasks(
    mesh: MeshOption = None,
    *,
    state: Annotated[
        str,
        option(
            "STATE",
            "Only in this state: working, input-required, completed, failed, ….",
            autocompletion=lambda: list(_STATES),
        ),
    ] = "",
    agent: Annotated[str, option("NAME", "Only of this agent.")] = "",
    context: Annotated[str, option("ID", "Only of this context.")] = "",
    since: Annotated[
        str, option("TIME", "Only with a status since then: 90s, 30m, 12h, 7d or a date.")
    ] = "",
    follow: Annotated[
        bool, flag("Also print each new status, until Ctrl-C.", "--follow", "-f")
    ] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    limit: Annotated[
        int, option("N", "The maximum number of tasks.", min=1, show_default=True)
    ] = 20,
    json: JsonOption = False,
) -> ExitCode:
    """List the latest tasks."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.task_list import (
        TaskQuery,
        fetch_tasks,
        follow_tasks,
        parse_state,
        print_change,
        print_tasks,
    )
    from trunkline.cli.times import parse_since

    query = TaskQuery(
        account=account,
        agent=agent,
        context_id=context,
        limit=limit,
        state=parse_state(state),
        since=parse_since(since) if since else None,
    )
    async with open_mesh_view(mesh) as view:
        if not follow:
            found, code = await fetch_tasks(view, query)
            empty = "no tasks match" if query.has_filters else _NO_TASKS
            print_tasks(found, empty=empty, as_json=json)
            return code
        async with aclosing(follow_tasks(view, query)) as changes:
            async for changed in changes:
                for each in changed:
                    print_change(each, as_json=json)
    return ExitCode.OK


async def task(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show a task: its question, state, route, calls of models and tools, and artifacts."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.task_view import fetch_model_calls, print_task

    async with open_mesh_view(mesh) as view:
        host = view.find_task_host(task_id)
        snapshot = await view.host_client(host).get_task(task_id, account=account)
        calls = await fetch_model_calls(view, task_id)
    print_task(snapshot, calls, host=host.address, as_json=json)


async def watch(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> ExitCode:
    """Show what happens in a task until its turn ends. Exits as `ask` does."""
    from trunkline.cli.task_events import EventPrinter, end_of_turn, print_json_events, read_batches

    show = print_json_events if json else EventPrinter().show
    code = ExitCode.FAILED
    async with aclosing(read_batches(task_id, mesh, account=account, follows=True)) as batches:
        async for batch in batches:
            show(batch)
            code = end_of_turn(batch, code)
    return code


async def events(
    task_id: Annotated[str, argument("TASK", "Its id. [all tasks]")] = "",
    mesh: MeshOption = None,
    *,
    wire: Annotated[
        str,
        option(
            "VERSION",
            "Show the events that clients of A2A get: v1, v0.3 or original.",
            autocompletion=lambda: ["v1", "v0.3", "original"],
        ),
    ] = "",
    follow: Annotated[
        bool, flag("Also show later events, until the turn ends.", "--follow", "-f")
    ] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show the journal of a task, event by event. With --json, a line of JSON for each.

    Without a TASK, show the events of all tasks as they happen, until Ctrl-C.
    """
    if not task_id:
        from trunkline.cli.all_events import print_all_events

        if wire:
            raise InvalidArgumentError("--wire", "is for one task; give its id")
        await print_all_events(mesh, account=account, as_json=json)
    from trunkline.cli.task_events import choose_printer, read_batches

    show = choose_printer(task_id, wire, as_json=json)
    async with aclosing(read_batches(task_id, mesh, account=account, follows=follow)) as batches:
        async for batch in batches:
            show(batch)


async def cancel(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Cancel a task and its children."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.core.task_states import state_name

    async with open_mesh_view(mesh, is_traced=True) as view:
        client = view.task_host_client(task_id)
        snapshot = await client.cancel_task(task_id, account=account, reason="by the command line")
    state = state_name(snapshot.task.status.state)
    if json:
        print_json({"task_id": task_id, "state": state})
    else:
        print(f"{task_id} {state}")


async def top(
    mesh: MeshOption = None,
    *,
    once: Annotated[bool, flag("Show it once, as to a pipe.", "--once")] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> ExitCode:
    """Show agents, who calls whom, running tasks and hosts, live.

    With --json, a line for each change, until Ctrl-C.
    """
    from trunkline.cli.top import open_sources, print_changes, print_once, show_live

    async with open_sources(mesh, account) as sources:
        if once or not (json or is_interactive(sys.stdout)):
            return await print_once(sources, as_json=json)
        if json:
            await print_changes(sources)
        await show_live(sources)
    return ExitCode.OK
