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


async def measure(run: Callable[[int], Awaitable[object]], runs: int) -> tuple[float, float]:
    """Return the median of the milliseconds of a run, and the milliseconds of CPU of a run."""
    for number in range(_WARM_UP):
        await run(-number - 1)
    times: list[float] = []
    cpu_began = time.process_time()
    for number in range(runs):
        began = time.perf_counter()
        await run(number)
        times.append(time.perf_counter() - began)
    cpu_s = time.process_time() - cpu_began
    return statistics.median(times) * 1000, cpu_s * 1000 / runs


async def compare(folder: Path, runs: int) -> None:
    """Measure both, in turns of the same process, and print a line for each."""
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
            f"LangGraph, {NODES} nodes": await measure(run_graph, runs),
            "workflow, 2 nodes": await measure(lambda _: short.ask("hi"), runs),
            f"workflow, {2 + NODES} nodes": await measure(lambda _: long.ask("hi"), runs),
        }
    connection.close()
    for name, (wall_ms, cpu_ms) in rows.items():
        print(f"{name:24} {wall_ms:7.2f} ms a run   {cpu_ms:7.2f} ms of CPU a run")
    (graph_ms, graph_cpu), (short_ms, short_cpu), (long_ms, long_cpu) = rows.values()
    print(
        f"LangGraph                {graph_ms / NODES:7.2f} ms a node  {graph_cpu / NODES:7.2f} CPU"
    )
    node_ms, node_cpu = (long_ms - short_ms) / NODES, (long_cpu - short_cpu) / NODES
    print(f"workflow                 {node_ms:7.2f} ms a node  {node_cpu:7.2f} CPU")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as _folder:
        asyncio.run(compare(Path(_folder), int(sys.argv[1]) if len(sys.argv) > 1 else 100))
