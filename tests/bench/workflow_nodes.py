"""The cost of a node of a workflow, beside LangGraph's own graph with its SQLite saver, in one run.

A chain of ten nodes that set a value runs as an agent on a host with a journal and checkpoints in
files. LangGraph's graph has as many nodes and its own `SqliteSaver`, also in a file, with a
checkpoint after each node. A run of two nodes is subtracted, so that the cost of a task does not
count. Run it by

    python tests/bench/workflow_nodes.py [RUNS]
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from trunkline import from_workflow
from trunkline.testing import mesh
from trunkline.workflows.definition import Workflow

NODES: Final = 10
_WARM_UP: Final = 20


def build_chain(steps: int) -> Workflow:
    """Return a start, actions and an end: as many nodes as `steps`."""
    actions = [f"step_{number}" for number in range(steps - 2)]
    ids = ["start", *actions, "end"]
    return Workflow.model_validate(
        {
            "name": "chain",
            "nodes": [
                {"id": "start", "type": "start"},
                *({"id": name, "type": "action", "set": {name: "${steps}"}} for name in actions),
                {"id": "end", "type": "end"},
            ],
            "edges": [{"from": a, "to": b} for a, b in pairwise(ids)],
        }
    )


class _State(TypedDict, total=False):
    text: str
    steps: int


def build_graph(connection: sqlite3.Connection) -> Any:
    """Return LangGraph's own graph of as many nodes."""
    graph = StateGraph(_State)
    names = [f"step_{number}" for number in range(NODES)]
    for name in names:
        graph.add_node(name, lambda state: {"steps": state.get("steps", 0) + 1})
    graph.add_edge(START, names[0])
    for before, after in pairwise(names):
        graph.add_edge(before, after)
    graph.add_edge(names[-1], END)
    return graph.compile(checkpointer=SqliteSaver(connection))


class Row:
    """The times of one kind of run."""

    def __init__(self, run: Callable[[int], Awaitable[object]]) -> None:
        self.run = run
        self.wall_ms: list[float] = []
        self.cpu_ms: list[float] = []

    async def measure(self, number: int) -> None:
        """Run once."""
        cpu_began, began = time.process_time(), time.perf_counter()
        await self.run(number)
        self.wall_ms.append((time.perf_counter() - began) * 1000)
        self.cpu_ms.append((time.process_time() - cpu_began) * 1000)

    @property
    def figures(self) -> tuple[float, float, float]:
        """The median and the least of the milliseconds of a run, and the median of its CPU."""
        wall_ms, cpu_ms = self.wall_ms[_WARM_UP:], self.cpu_ms[_WARM_UP:]
        return statistics.median(wall_ms), min(wall_ms), statistics.median(cpu_ms)


async def compare(folder: Path, runs: int) -> None:
    """Measure both, in turns of the same process, and print a line for each.

    On a busy machine only the least time shows the cost; the medians are those of the load.
    """
    connection = sqlite3.connect(folder / "graph.db", check_same_thread=False)
    graph = build_graph(connection)

    async def run_graph(number: int) -> None:
        config = {"configurable": {"thread_id": f"thread-{number}"}}
        graph.invoke({"text": "hi", "steps": 0}, config, durability="sync")

    async with (
        mesh(from_workflow(build_chain(2)), data_dir=folder / "short") as short,
        mesh(from_workflow(build_chain(2 + NODES)), data_dir=folder / "long") as long,
    ):
        rows = {
            f"LangGraph, {NODES} nodes": Row(run_graph),
            "workflow, 2 nodes": Row(lambda _: short.ask("hi")),
            f"workflow, {2 + NODES} nodes": Row(lambda _: long.ask("hi")),
        }
        for number in range(_WARM_UP + runs):
            for row in rows.values():
                await row.measure(number)
    connection.close()
    graph, two, twelve = (row.figures for row in rows.values())
    figures = {
        **{f"{name}, a run": row.figures for name, row in rows.items()},
        "LangGraph, a node": [each / NODES for each in graph],
        "workflow, a node": [(a - b) / NODES for a, b in zip(twelve, two, strict=True)],
    }
    for name, (median_ms, least_ms, cpu_ms) in figures.items():
        print(f"{name:28} {median_ms:7.2f} ms, {least_ms:6.2f} at least, {cpu_ms:6.2f} of CPU")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as _folder:
        asyncio.run(compare(Path(_folder), int(sys.argv[1]) if len(sys.argv) > 1 else 100))
