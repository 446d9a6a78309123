"""`trunkline top`: agents, running tasks, and the text that they stream, live."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import MeshView, open_mesh_view, query_hosts
from trunkline.cli.table_layout import join_cells, lay_out_record, lay_out_table
from trunkline.cli.terminal import is_interactive, print_json, print_table
from trunkline.cli.times import time_cell
from trunkline.client import HostClient
from trunkline.errors import TrunklineError
from trunkline.journal.batches import parse_batch
from trunkline.task_states import state_name
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2

if TYPE_CHECKING:
    from rich.console import RenderableType

_INTERVAL_S: Final = 1.0
# Tasks whose streams are read at once; further ones are listed without their rate.
_WATCH_LIMIT: Final = 50
_PAGE_SIZE: Final = 100
_AGENT_TITLES: Final = ("AGENT", "WORKING", "WAITING", "TOKENS/S")
_TASK_TITLES: Final = ("TASK", "AGENT", "STATE", "SINCE")
_WORKING: Final = (task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_WORKING)
_WAITING: Final = (task_pb2.TASK_STATE_INPUT_REQUIRED, task_pb2.TASK_STATE_AUTH_REQUIRED)


async def show_top(mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Show agents and tasks until Ctrl-C; to a pipe, once.

    Tokens are pieces of text, as models stream them. An agent's rate leaves out what it passes on
    from other agents.
    """
    async with open_mesh_view(mesh) as view, asyncio.TaskGroup() as group:
        meter = _TokenMeter(group, account)
        try:
            if as_json or not is_interactive(sys.stdout):
                code = await _show_once(view, meter, as_json=as_json)
            else:
                code = await _show_live(view, meter)
        finally:
            meter.stop()
    return code


@dataclass(slots=True)
class _Sample:
    """The state of a mesh at one time."""

    agents: Sequence[str]
    tasks: Sequence[snapshot_pb2.TaskSummary]
    """Tasks that work or wait, newest status first."""
    tokens_per_s: Counter[str] = field(default_factory=Counter)
    """By agent."""

    def agent_rows(self) -> list[tuple[str, str, str, str]]:
        working = Counter(task.agent for task in self.tasks if task.status.state in _WORKING)
        waiting = Counter(task.agent for task in self.tasks if task.status.state in _WAITING)
        return [
            (name, str(working[name]), str(waiting[name]), str(self.tokens_per_s[name]))
            for name in self.agents
        ]

    def task_rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                task.task_id,
                task.agent,
                state_name(task.status.state),
                time_cell(task.status.timestamp),
            )
            for task in self.tasks
        ]


class _TokenMeter:
    """Counts the texts that running tasks stream, by agent."""

    def __init__(self, group: asyncio.TaskGroup, account: str) -> None:
        self._group = group
        self.account = account
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._counts: Counter[str] = Counter()
        self._since = time.monotonic()

    def follow(self, view: MeshView, tasks: Sequence[snapshot_pb2.TaskSummary]) -> None:
        """Read the streams of the tasks that work."""
        for task_id, watch in list(self._watches.items()):
            if watch.done():
                del self._watches[task_id]
        for task in tasks:
            is_new = task.task_id not in self._watches and task.status.state in _WORKING
            if is_new and len(self._watches) < _WATCH_LIMIT:
                work = self._watch(view, task.task_id, task.agent)
                self._watches[task.task_id] = self._group.create_task(work)

    def take_rates(self) -> Counter[str]:
        """Return the texts a second since the last call, by agent."""
        now = time.monotonic()
        elapsed_s, self._since = max(now - self._since, 0.001), now
        counts, self._counts = self._counts, Counter()
        return Counter({name: round(count / elapsed_s) for name, count in counts.items()})

    def stop(self) -> None:
        """Stop reading streams."""
        for watch in self._watches.values():
            watch.cancel()

    async def _watch(self, view: MeshView, task_id: str, agent: str) -> None:
        # The list of tasks shows that a task or its host is gone.
        with suppress(TrunklineError):
            client = view.task_host_client(task_id)
            stream = client.watch_task(task_id, account=self.account, with_snapshot=False)
            async with stream as batches:
                async for sealed_batches in batches:
                    for batch in map(parse_batch, sealed_batches):
                        if not batch.header.HasField("origin"):
                            self._counts[agent] += sum(
                                len(event.delta.texts) for event in batch.events
                            )


async def _take_sample(view: MeshView, meter: _TokenMeter) -> tuple[_Sample, ExitCode]:
    view = await view.refresh()

    async def fetch(host: HostClient) -> list[snapshot_pb2.TaskSummary]:
        tasks: list[snapshot_pb2.TaskSummary] = []
        for state in (*_WORKING, *_WAITING):
            request = task_service_pb2.ListTasksRequest(
                account=meter.account, state=state, page_size=_PAGE_SIZE
            )
            tasks += (await host.list_tasks(request)).tasks
        return tasks

    tasks, code = await query_hosts(view, fetch)
    tasks.sort(key=lambda task: task.status.timestamp.ToNanoseconds(), reverse=True)
    meter.follow(view, tasks)
    agents = sorted({agent.card.name for host in view.hosts for agent in host.agents})
    return _Sample(agents, tasks, meter.take_rates()), code


async def _show_once(view: MeshView, meter: _TokenMeter, *, as_json: bool) -> ExitCode:
    await _take_sample(view, meter)
    # The rate is that of the time between two samples.
    await asyncio.sleep(_INTERVAL_S)
    sample, code = await _take_sample(view, meter)
    if as_json:
        counts = ("working", "waiting", "tokens_per_s")
        agents = [
            {"agent": name, **{key: int(text) for key, text in zip(counts, texts, strict=True)}}
            for name, *texts in sample.agent_rows()
        ]
        keys = ("task_id", "agent", "state", "since")
        tasks = [dict(zip(keys, row, strict=True)) for row in sample.task_rows()]
        print_json({"agents": agents, "tasks": tasks})
    else:
        print_table(_AGENT_TITLES, sample.agent_rows())
        print()
        print_table(_TASK_TITLES, sample.task_rows(), empty="no tasks run or wait")
    return code


async def _show_live(view: MeshView, meter: _TokenMeter) -> ExitCode:
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
            sample, _ = await _take_sample(view, meter)
            live.update(_render(sample, console.width, console.height), refresh=True)
            await asyncio.sleep(_INTERVAL_S)


def _render(sample: _Sample, width: int, height: int) -> "RenderableType":
    from rich.text import Text

    from trunkline.cli.rich_console import Harmless

    text = Text(no_wrap=True)
    for titles, rows in (
        (_AGENT_TITLES, sample.agent_rows()),
        (_TASK_TITLES, sample.task_rows()),
    ):
        table = lay_out_table(titles, rows, width=width)
        if table is None:
            for row in rows:
                text.append("\n".join(lay_out_record(titles, row)) + "\n\n")
            continue
        text.append(join_cells(table[0]) + "\n", style="bold")
        text.append("".join(f"{join_cells(cells)}\n" for cells in table[1:]) + "\n")
    hint = "Ctrl-C leaves"
    lines = text.split("\n")[: height - 1]
    return Harmless(Text("\n").join([*lines, Text(hint, style="dim")]))
