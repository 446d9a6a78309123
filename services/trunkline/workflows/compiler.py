"""Compiles a workflow to a LangGraph graph. Importing this module loads LangGraph.

Each node of the workflow is a node of the graph, and each has a checkpoint. The branches of a
parallel node are separate graphs, so that each runs at its own pace, and waits alone. A node
of the graph before the join, which is not in the workflow, waits for all of them.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeAlias, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from trunkline.errors import WorkflowFailedError
from trunkline.observe.metrics import instruments
from trunkline.workflows.definition import Edge, EndNode, Node, ParallelNode, StartNode, Workflow
from trunkline.workflows.nodes import NodeFailure, Result, WorkflowRun
from trunkline.workflows.routing import (
    FAILED,
    Scope,
    branch_end,
    branch_join,
    find_branches,
    find_edge,
    find_joins,
    group_edges,
)

WAITING = "waiting"
"""The label of a node that stopped for a question, in the journal."""


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
    received: Annotated[list[str], _extend]
    """The ids of the messages that ended waits, which end no further wait."""
    branches: Annotated[dict[str, Any], _merge]
    """The last result of each branch, by the name of its node."""
    output: Annotated[dict[str, Any], _replace]


WorkflowGraph: TypeAlias = CompiledStateGraph[
    WorkflowState, WorkflowRun, WorkflowState, WorkflowState
]
_Builder: TypeAlias = StateGraph[WorkflowState, WorkflowRun, WorkflowState, WorkflowState]


class _NodeFunction(Protocol):
    def __call__(
        self, state: WorkflowState, *, runtime: Runtime[WorkflowRun]
    ) -> Awaitable[Command[Any]]: ...


def compile_workflow(workflow: Workflow) -> WorkflowGraph:
    """Compile a workflow that has been validated."""
    start = next(node for node in workflow.nodes if isinstance(node, StartNode))
    return _Compiler(workflow, start.id).compile((), start.id)


class _Compiler:
    """Compiles the nodes of one workflow, each branch to a separate graph."""

    def __init__(self, workflow: Workflow, start: str) -> None:
        self._workflow = workflow
        self._outgoing = group_edges(workflow)
        self._joins = find_joins(workflow.nodes)
        self._scopes = find_branches(start, self._outgoing, self._joins).scopes

    def compile(self, scope: Scope, entry: str) -> WorkflowGraph:
        """Compile the nodes of one branch; `()` is the workflow without its branches."""
        graph: _Builder = StateGraph(WorkflowState, context_schema=WorkflowRun)
        graph.add_edge(START, entry)
        for node in self._workflow.nodes:
            if self._scopes.get(node.id) != scope:
                continue
            edges = self._outgoing.get(node.id, [])
            if isinstance(node, ParallelNode):
                targets = self._add_branches(graph, node, edges)
            else:
                targets = [self._find_target(edge.target, scope) for edge in edges]
            function = _build_function(self._workflow, node, edges, targets)
            destinations = tuple(dict.fromkeys(targets)) or (END,)
            graph.add_node(node.id, function, destinations=destinations)
        return graph.compile(name=self._workflow.name)

    def _find_target(self, target: str, scope: Scope) -> str:
        """Return the node of the graph that leads to a node; END: the end of the branch."""
        is_join = bool(scope) and target == self._joins[scope[-1][0]]
        return END if is_join else target

    def _add_branches(
        self, graph: _Builder, node: ParallelNode, edges: Sequence[Edge]
    ) -> list[str]:
        """Add a node for each branch, and a node that joins them; return the branches' names."""
        scope = self._scopes[node.id]
        names = [branch_end(node.id, number) for number in range(len(edges))]
        for number, (name, edge) in enumerate(zip(names, edges, strict=True)):
            branch = None
            if edge.target != node.join:
                branch = self.compile((*scope, (node.id, number)), edge.target)
            graph.add_node(name, _build_branch(name, branch))
        join = branch_join(node.id)
        graph.add_node(join, _build_join(node.id, names))
        graph.add_edge(names, join)
        graph.add_edge(join, self._find_target(node.join, scope))
        return names


def _build_branch(
    name: str, branch: WorkflowGraph | None
) -> Callable[..., Awaitable[WorkflowState]]:
    """Return the function that runs a branch, and adds what it changed to the state."""

    async def run(
        state: WorkflowState, config: RunnableConfig, *, runtime: Runtime[WorkflowRun]
    ) -> WorkflowState:
        if branch is None:
            return {"branches": {name: _last(state)}}
        start: WorkflowState = {**state, "visited": [], "received": [], "branches": {}}
        # Checkpointer, durability and resumption come with the config of the graph above.
        end = await branch.ainvoke(start, config, context=runtime.context)
        return {
            "nodes": _changes(state.get("nodes", {}), end.get("nodes", {})),
            "data": _changes(state.get("data", {}), end.get("data", {})),
            "steps": end.get("steps", 0) - state.get("steps", 0),
            "visited": end.get("visited", []),
            "received": end.get("received", []),
            "branches": {name: _last(end)},
        }

    return run


def _last(state: WorkflowState | Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the node that ran last, or an empty result before the first."""
    empty: dict[str, Any] = {"node": "", "text": "", "data": None, "time": 0.0}
    return state.get("last", empty)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    missing = object()
    return {key: value for key, value in new.items() if old.get(key, missing) != value}


def _build_join(parallel: str, names: Sequence[str]) -> Callable[..., Awaitable[WorkflowState]]:
    """Return the function whose `last` has the results of all branches, in their order."""

    async def join(state: WorkflowState) -> WorkflowState:
        branches = state.get("branches", {})
        ends = [branches[name] for name in names]
        result = Result(
            "\n\n".join(end["text"] for end in ends if end["text"]), [end["data"] for end in ends]
        )
        return {"last": result.to_json(parallel)}

    return join


def _build_function(
    workflow: Workflow, node: Node, edges: Sequence[Edge], targets: Sequence[str]
) -> _NodeFunction:
    """Return the function that runs a node, and chooses the next nodes."""

    async def run(state: WorkflowState, *, runtime: Runtime[WorkflowRun]) -> Command[Any]:
        context = runtime.context
        await context.wait_while_paused()
        steps = state.get("steps", 0)
        if steps >= workflow.limits.steps:
            problem = f"it took {steps} steps without an end; raise limits.steps if that is right"
            raise WorkflowFailedError(workflow.name, node.id, problem)
        await context.start_step(node.id)
        started_s = time.perf_counter()
        try:
            result = await context.run_node(node, _read_variables(state, steps))
        except NodeFailure as failure:
            result = Result(str(failure), label=FAILED, state="failed")
        except GraphBubbleUp:
            await context.finish_step(node.id, WAITING)
            raise
        # A wait is no run that has ended.
        error_type = "failed" if result.label == FAILED else ""
        duration_s = time.perf_counter() - started_s
        instruments.NODE_DURATION.record(duration_s, workflow.name, node.id, error_type)
        await context.finish_step(
            node.id, result.label, is_error=result.label == FAILED, text=result.text
        )
        if isinstance(node, EndNode) and result.label != FAILED:
            return _continue(node, result, [END])
        if isinstance(node, ParallelNode) and result.label != FAILED:
            return _continue(node, result, list(targets))
        edge = None if isinstance(node, ParallelNode) else find_edge(edges, result.label)
        if edge is None:
            problem = f"no edge has the label {result.label!r}"
            if result.label == FAILED:
                problem = result.text
            raise WorkflowFailedError(workflow.name, node.id, problem)
        return _continue(node, result, [targets[edges.index(edge)]])

    return run


def _read_variables(state: WorkflowState, steps: int) -> dict[str, Any]:
    """Return what expressions read, and the ids of the messages that ended waits."""
    return {
        "input": state.get("input", {}),
        "nodes": state.get("nodes", {}),
        "last": _last(state),
        "data": state.get("data", {}),
        "steps": steps,
        "received": state.get("received", []),
    }


def _continue(node: Node, result: Result, goto: list[str]) -> Command[Any]:
    last = result.to_json(node.id)
    update: WorkflowState = {"nodes": {node.id: last}, "last": last, "steps": 1}
    update["visited"] = [node.id]
    if result.values:
        update["data"] = dict(result.values)
    if result.received:
        update["received"] = [result.received]
    if isinstance(node, EndNode):
        update["output"] = last
    return Command(update=update, goto=goto)
