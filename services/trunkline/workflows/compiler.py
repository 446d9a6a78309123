"""Compiles a workflow to a LangGraph graph. Importing this module loads LangGraph.

Each node of the workflow is a node of the graph, and each has a checkpoint. A parallel node starts
all its branches. Each branch ends at a node of the graph that is not in the workflow, and the join
runs once all of these have run.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeAlias, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from trunkline.errors import WorkflowFailedError
from trunkline.workflows.definition import Edge, EndNode, Node, ParallelNode, StartNode, Workflow
from trunkline.workflows.nodes import NodeFailure, WorkflowRun, run_node
from trunkline.workflows.routing import (
    FAILED,
    Branches,
    branch_end,
    find_branches,
    find_edge,
    group_edges,
)


def _merge(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    return {**(old or {}), **new}


def _replace(_old: object, new: dict[str, Any]) -> dict[str, Any]:
    return new


def _add(old: int | None, new: int) -> int:
    return (old or 0) + new


def _extend(old: Sequence[str] | None, new: Sequence[str]) -> list[str]:
    return [*(old or ()), *new]


class WorkflowState(TypedDict, total=False):
    """The state of a run: what expressions read, the way so far, and the output. JSON values."""

    input: dict[str, Any]
    nodes: Annotated[dict[str, Any], _merge]
    last: Annotated[dict[str, Any], _replace]
    data: Annotated[dict[str, Any], _merge]
    steps: Annotated[int, _add]
    visited: Annotated[list[str], _extend]
    output: Annotated[dict[str, Any], _replace]


WorkflowGraph: TypeAlias = CompiledStateGraph[
    WorkflowState, WorkflowRun, WorkflowState, WorkflowState
]


class _NodeFunction(Protocol):
    def __call__(
        self, state: WorkflowState, *, runtime: Runtime[WorkflowRun]
    ) -> Awaitable[Command[Any]]: ...


def compile_workflow(workflow: Workflow) -> WorkflowGraph:
    """Compile a workflow that has been validated. Its drawing is that of the compiled graph."""
    start = next(node for node in workflow.nodes if isinstance(node, StartNode))
    branches = find_branches(workflow, start.id)
    outgoing = group_edges(workflow)
    joins = {node.id: node.join for node in workflow.nodes if isinstance(node, ParallelNode)}
    graph = StateGraph(WorkflowState, context_schema=WorkflowRun)
    graph.add_edge(START, start.id)
    joined: dict[str, list[str]] = {}
    for node in workflow.nodes:
        edges = outgoing.get(node.id, [])
        targets = _find_targets(node, edges, branches, joins)
        destinations = tuple(dict.fromkeys(targets)) or (END,)
        function = _build_function(workflow, node, edges, targets)
        graph.add_node(node.id, function, destinations=destinations)
        if isinstance(node, ParallelNode):
            ends = [branch_end(node.id, number) for number in range(len(edges))]
            joined[node.join] = ends
            for end in ends:
                graph.add_node(end, _end_branch)
    for join, ends in joined.items():
        graph.add_edge(ends, join)
    return graph.compile(name=workflow.name)


def _find_targets(
    node: Node, edges: Sequence[Edge], branches: Branches, joins: Mapping[str, str]
) -> list[str]:
    """Return the node of the graph for each edge: its target, or the end of the branch."""
    targets: list[str] = []
    for number, edge in enumerate(edges):
        scope = branches.scopes[node.id]
        if isinstance(node, ParallelNode):
            scope = (*scope, (node.id, number))
        is_join = bool(scope) and edge.target == joins[scope[-1][0]]
        targets.append(branch_end(*scope[-1]) if is_join else edge.target)
    return targets


def _build_function(
    workflow: Workflow, node: Node, edges: Sequence[Edge], targets: Sequence[str]
) -> _NodeFunction:
    """Return the function that runs a node, and chooses the next ones."""

    async def run(state: WorkflowState, *, runtime: Runtime[WorkflowRun]) -> Command[Any]:
        steps = state.get("steps", 0)
        if steps >= workflow.limits.steps:
            problem = f"it took {steps} steps without an end; raise limits.steps if that is right"
            raise WorkflowFailedError(workflow.name, node.id, problem)
        variables: dict[str, Any] = {
            "input": state["input"],
            "nodes": state.get("nodes", {}),
            "last": state.get("last", {"node": "", "text": "", "data": None, "time": 0.0}),
            "data": state.get("data", {}),
            "steps": steps,
        }
        try:
            result = await run_node(node, variables, runtime.context)
        except NodeFailure as failure:
            edge = find_edge(edges, FAILED)
            if edge is None:
                raise WorkflowFailedError(workflow.name, node.id, str(failure)) from failure
            last = {
                "node": node.id,
                "text": str(failure),
                "data": None,
                "label": FAILED,
                "state": "failed",
                "time": variables["last"].get("time", 0.0),
            }
            return _continue(node, last, {}, [targets[edges.index(edge)]])
        last = result.to_json(node.id)
        if isinstance(node, EndNode):
            return _continue(node, last, {}, [END], output=last)
        if isinstance(node, ParallelNode):
            return _continue(node, last, {}, list(targets))
        edge = find_edge(edges, result.label)
        if edge is None:
            problem = f"no edge has the label {result.label!r}"
            raise WorkflowFailedError(workflow.name, node.id, problem)
        return _continue(node, last, result.values, [targets[edges.index(edge)]])

    return run


def _continue(
    node: Node,
    last: dict[str, Any],
    values: Mapping[str, Any],
    goto: list[str],
    *,
    output: dict[str, Any] | None = None,
) -> Command[Any]:
    update: dict[str, Any] = {
        "nodes": {node.id: last},
        "last": last,
        "steps": 1,
        "visited": [node.id],
    }
    if values:
        update["data"] = dict(values)
    if output is not None:
        update["output"] = output
    return Command(update=update, goto=goto)


async def _end_branch(state: WorkflowState) -> WorkflowState:
    """End a branch; the join waits for this node."""
    return {}
