"""The commands that show tasks, follow them and cancel them."""

import sys
from contextlib import aclosing
from typing import Annotated

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    MeshCall,
    TaskIdArgument,
    argument,
    flag,
    option,
)
from trunkline.cli.terminal import is_interactive, print_json
from trunkline.errors import InvalidArgumentError

_NO_TASKS = "no tasks yet; `trunkline ask` makes one"
# Not read from the contract, because protobuf is slow to import.
_STATES = (
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "rejected",
    "canceled",
)  # fmt: skip


async def tasks(
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
    limit: Annotated[
        int, option("N", "The maximum number of tasks.", min=1, show_default=True)
    ] = 20,
    call: MeshCall,
) -> ExitCode:
    """List the latest tasks."""
    from trunkline.cli.directory import open_directory
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
        account=call.account,
        agent=agent,
        context_id=context,
        limit=limit,
        state=parse_state(state),
        since=parse_since(since) if since else None,
    )
    async with open_directory(call.mesh, follows=follow) as directory:
        if not follow:
            found, code = await fetch_tasks(directory, query)
            empty = "no tasks match" if query.has_filters else _NO_TASKS
            print_tasks(found, empty=empty, as_json=call.json)
            return code
        async with aclosing(follow_tasks(directory, query)) as changes:
            async for changed in changes:
                for each in changed:
                    print_change(each, as_json=call.json)
    return ExitCode.OK


async def task(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> None:
    """Show a task: its question, state, route, calls of models and tools, and artifacts."""
    from trunkline.cli.directory import open_directory
    from trunkline.cli.task_view import fetch_model_calls, print_task
    from trunkline.mesh.client.host_queries import fetch_task

    async with open_directory(call.mesh) as directory:
        host = directory.get_task_host(task_id)
        snapshot = await fetch_task(directory, task_id, account=call.account)
        calls = await fetch_model_calls(directory, task_id)
    print_task(snapshot, calls, host=host.address, as_json=call.json)


async def watch(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> ExitCode:
    """Show what happens in a task until its turn ends. Exits as `ask` does."""
    from trunkline.cli.task_events import EventPrinter, end_of_turn, print_json_events, read_batches

    show = print_json_events if call.json else EventPrinter().show
    code = ExitCode.FAILED
    async with aclosing(read_batches(task_id, call, follows=True)) as batches:
        async for batch in batches:
            show(batch)
            code = end_of_turn(batch, code)
    return code


async def events(
    task_id: Annotated[str, argument("TASK", "Its id. [all tasks]")] = "",
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
    call: MeshCall,
) -> None:
    """Show the journal of a task, event by event. With --json, a line of JSON for each.

    Without a TASK, show the events of all tasks as they happen, until Ctrl-C.
    """
    if not task_id:
        from trunkline.cli.all_events import print_all_events

        if wire:
            raise InvalidArgumentError("--wire", "is for one task; give its id")
        await print_all_events(call.mesh, account=call.account, as_json=call.json)
    from trunkline.cli.task_events import choose_printer, read_batches

    show = choose_printer(task_id, wire, as_json=call.json)
    async with aclosing(read_batches(task_id, call, follows=follow)) as batches:
        async for batch in batches:
            show(batch)


async def cancel(
    task_id: TaskIdArgument,
    *,
    call: MeshCall,
) -> None:
    """Cancel a task and its children."""
    from trunkline.cli.directory import open_directory
    from trunkline.core.task_states import state_name

    async with open_directory(call.mesh, is_traced=True) as directory:
        client = directory.client_for_task(task_id)
        snapshot = await client.cancel_task(
            task_id, account=call.account, reason="by the command line"
        )
    state = state_name(snapshot.task.status.state)
    if call.json:
        print_json({"task_id": task_id, "state": state})
    else:
        print(f"{task_id} {state}")


async def top(
    *,
    once: Annotated[bool, flag("Show it once, as to a pipe.", "--once")] = False,
    call: MeshCall,
) -> ExitCode:
    """Show agents, who calls whom, running tasks and hosts, live.

    With --json, a line for each change, until Ctrl-C.
    """
    from trunkline.cli.top import open_sources, print_changes, print_once, show_live

    async with open_sources(call.mesh, call.account) as sources:
        if once or not (call.json or is_interactive(sys.stdout)):
            return await print_once(sources, as_json=call.json)
        if call.json:
            await print_changes(sources)
        await show_live(sources)
    return ExitCode.OK
