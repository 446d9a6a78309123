"""`trunkline top`: the mesh as the page shows it: agents, who calls whom, tasks and hosts, live."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from google.protobuf import timestamp_pb2

from trunkline.cli.directory import open_directory, print_lost_hosts
from trunkline.cli.exits import ExitCode
from trunkline.cli.table_layout import join_cells, lay_out_record, lay_out_table
from trunkline.cli.terminal import (
    print_json,
    print_stderr,
    print_table,
    state_style,
)
from trunkline.cli.times import render_latency, render_percent, time_cell
from trunkline.cli.top_sources import TopSources
from trunkline.core.task_states import state_name
from trunkline.mesh.client import run_in_background
from trunkline.mesh.client.mesh_tasks import watch_mesh_tasks
from trunkline.mesh.client.mesh_words import agent_kind, edge_kind, error_ratio, tool_server_state

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_INTERVAL_S: Final = 1.0
_INCOMPLETE: Final = "a host does not answer; its tasks are missing (`trunkline tasks` names it)"

_Cell: TypeAlias = str | int | float | list[str]
_Rows: TypeAlias = list[dict[str, _Cell]]
# The tables in their order: the key of their rows in JSON, and the title of each column by its key.
# The page has the same words.
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "agents": {
        "agent": "AGENT",
        "host": "HOST",
        "kind": "KIND",
        "breaker": "BREAKER",
        "working": "WORKING",
        "waiting": "WAITING",
        "tokens_per_s": "TOKENS/S",
    },
    "edges": {
        "from": "FROM",
        "to": "TO",
        "kind": "KIND",
        "breaker": "BREAKER",
        "rate_per_s": "RATE",
        "error_ratio": "ERRORS",
        "p50_ms": "P50",
        "p95_ms": "P95",
    },
    "tasks": {"task_id": "TASK", "agent": "AGENT", "state": "STATE", "since": "SINCE"},
    "tool_servers": {"server": "SERVER", "state": "STATE", "breaker": "BREAKER", "tools": "TOOLS"},
    "hosts": {
        "host": "HOST",
        "state": "STATE",
        "open_turns": "TURNS",
        "address": "ADDRESS",
        "agents": "AGENTS",
    },
}
_STATE_TITLES: Final = frozenset({"STATE", "BREAKER"})
_EMPTY: Final = {
    "agents": "no agents",
    "edges": "no calls in the last minute",
    "tasks": "no tasks run or wait",
    "tool_servers": "no tool servers",
    "hosts": "no hosts",
}


async def print_once(sources: TopSources, *, as_json: bool) -> ExitCode:
    """Print the mesh as it is now; return the exit code, which says that a host is missing."""
    # The rate of tokens counts the tokens since the last sample.
    await asyncio.sleep(_INTERVAL_S)
    _print(build_state(sources), as_json=as_json)
    code = print_lost_hosts(sources.directory.missing_hosts)
    if sources.is_incomplete and not code:
        print_stderr(f"error: {_INCOMPLETE}")
        return ExitCode.UNREACHABLE
    return code


@asynccontextmanager
async def open_sources(mesh: str | None, account: str) -> AsyncGenerator[TopSources]:
    """Follow what the tables show of a mesh, while a block runs.

    Tokens are pieces of text, as models stream them. An agent's rate leaves out what it passes on
    from other agents.
    """
    async with AsyncExitStack() as stack:
        directory = await stack.enter_async_context(open_directory(mesh, follows=True))
        watch = await stack.enter_async_context(watch_mesh_tasks(directory, account))
        sources = TopSources(directory, account)
        await sources.list_tasks()
        await stack.enter_async_context(run_in_background(sources.follow(watch)))
        yield sources


def build_state(sources: TopSources) -> dict[str, _Rows]:
    """Return the rows of all tables, by the names of the tables and of the columns in JSON."""
    directory, tokens = sources.directory, sources.take_token_rates()
    breakers, host_breakers = directory.agent_breaker_states(), directory.breaker_states()
    return {
        "agents": [
            {
                "agent": agent.card.name,
                "host": host.host_id,
                "kind": agent_kind(agent),
                # A breaker of an agent outside the mesh says more than the breaker of its host.
                "breaker": agent.breaker or host_breakers.get(host.address, "closed"),
                "working": sources.count_working(agent.card.name, host),
                "waiting": sources.count_waiting(agent.card.name, host),
                "tokens_per_s": sum(
                    tokens[agent.card.name, journal_id] for journal_id in host.journal_ids
                ),
            }
            for agent, host in sorted(
                ((agent, host) for host in directory.hosts for agent in host.agents),
                key=lambda each: (each[0].card.name, each[1].host_id),
            )
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.target,
                "kind": edge_kind(edge),
                "breaker": breakers.get(edge.target, "closed"),
                "rate_per_s": edge.rate_per_s,
                "error_ratio": error_ratio(edge),
                "p50_ms": edge.p50_ms,
                "p95_ms": edge.p95_ms,
            }
            for edge in sorted(sources.edges, key=lambda edge: -edge.rate_per_s)
        ],
        "tasks": [
            {
                "task_id": task.task_id,
                "agent": task.agent,
                "state": state_name(task.status.state),
                "since": task.status.timestamp.ToJsonString(),
            }
            for task in sources.list_current_tasks()
        ],
        "tool_servers": [
            {
                "server": server.name,
                "state": tool_server_state(server),
                "breaker": server.breaker or "closed",
                "tools": sum(tool.server == server.name for tool in sources.tools.tools),
            }
            for server in sources.tools.servers
        ],
        "hosts": [
            {
                "host": host.host_id,
                "state": state,
                "open_turns": host.load.open_turns,
                "address": host.address,
                "agents": [agent.card.name for agent in host.agents],
            }
            for host, state in directory.list_host_states()
        ],
    }


def _render_cell(key: str, value: _Cell) -> str:
    match key, value:
        case "rate_per_s", float():
            return f"{value:.0f}/s" if value >= 100 else f"{value:.2f}/s"
        case "error_ratio", float():
            return render_percent(value)
        case "p50_ms" | "p95_ms", float():
            return render_latency(value)
        case "since", str():
            since = timestamp_pb2.Timestamp()
            since.FromJsonString(value)
            return time_cell(since)
    return ", ".join(value) if isinstance(value, list) else str(value)


def _table_rows(name: str, state: Mapping[str, _Rows]) -> list[list[str]]:
    return [[_render_cell(key, row[key]) for key in TABLES[name]] for row in state[name]]


def _print(state: Mapping[str, _Rows], *, as_json: bool) -> None:
    if as_json:
        print_json(state)
        return
    for number, (name, columns) in enumerate(TABLES.items()):
        if number:
            print()
        print_table([*columns.values()], _table_rows(name, state), empty=_EMPTY[name])


async def print_changes(sources: TopSources) -> NoReturn:
    """Print a line of JSON for each change, until canceled."""
    last: Mapping[str, _Rows] = {}
    while True:
        state = build_state(sources)
        if state != last:
            print_json(state)
            last = state
        await asyncio.sleep(_INTERVAL_S)


async def show_live(sources: TopSources) -> NoReturn:
    """Draw what the streams have brought, once a second: ages and rates change without a notice."""
    from rich.live import Live

    from trunkline.cli.rich_console import open_console

    console = open_console(sys.stdout)
    live = Live(
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        while True:
            state = build_state(sources)
            hint = "Ctrl-C leaves"
            if sources.is_incomplete:
                hint += f"; {_INCOMPLETE}"
            live.update(_render(state, hint, console.width, console.height), refresh=True)
            await asyncio.sleep(_INTERVAL_S)


def _render(state: Mapping[str, _Rows], hint: str, width: int, height: int) -> "RenderableType":
    from rich.text import Text

    from trunkline.cli.rich_console import Harmless

    text = Text(no_wrap=True)
    for name, columns in TABLES.items():
        rows = _table_rows(name, state)
        if rows:
            _append_table(text, [*columns.values()], rows, width)
    lines = text.split("\n")[: height - 1]
    return Harmless(Text("\n").join([*lines, Text(hint, style="dim")]))


def _append_table(
    text: "Text", titles: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> None:
    table = lay_out_table(titles, rows, width=width)
    if table is None:
        for row in rows:
            text.append("\n".join(lay_out_record(titles, row)) + "\n\n")
        return
    text.append(join_cells(table[0]) + "\n", style="bold")
    for cells in table[1:]:
        begin = len(text)
        text.append(join_cells(cells) + "\n")
        for number, title in enumerate(titles):
            if title in _STATE_TITLES and (style := state_style(cells[number])):
                start = begin + len(join_cells([*cells[:number], "|"])) - 1
                text.stylize(style, start, start + len(cells[number].rstrip()))
    text.append("\n")
