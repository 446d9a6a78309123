"""Checks the graph of a workflow: its nodes, edges, ways, labels, and branches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from trunkline.core.source_documents import Keys, suggest
from trunkline.workflows.definition import (
    ApprovalNode,
    ConditionNode,
    Edge,
    EndNode,
    Node,
    ParallelNode,
    StartNode,
    WaitNode,
)
from trunkline.workflows.expressions import RESERVED
from trunkline.workflows.reader import WorkflowSource
from trunkline.workflows.routing import (
    FAILED,
    OK,
    Scope,
    branch_end,
    branch_join,
    find_branches,
    find_edge,
    find_joins,
)

# Fields of a run's state.
_STATE_WORDS: Final = frozenset({"data", "input", "last", "nodes", "output", "steps", "visited"})

_ANYWHERE: Final = None
"""The target of an edge with a wrong name. It may be any node, so that it hides no other fault."""
_Ways: TypeAlias = dict[str | None, set[str | None]]


class GraphChecks:
    """The nodes and edges of a source, with the faults left out."""

    def __init__(self, source: WorkflowSource) -> None:
        self._source = source
        self._document = source.document
        self.nodes: Mapping[str, Node | None] = {
            node_id: node for node_id, (_, node) in source.nodes.items()
        }
        self.edges: list[tuple[int, Edge]] = []
        self._outgoing: dict[str, list[tuple[int, Edge]]] = {node_id: [] for node_id in self.nodes}
        self._targets: _Ways = {_ANYWHERE: {*self.nodes}}
        self._origins: _Ways = {_ANYWHERE: set()}
        self._earlier: _Ways = {_ANYWHERE: set()}
        for node_id in self.nodes:
            self._targets[node_id] = set()
            self._origins[node_id], self._earlier[node_id] = {_ANYWHERE}, {_ANYWHERE}
        for index, edge in source.edges:
            if edge.source in self.nodes:
                self._add_edge(index, edge)

    def _add_edge(self, index: int, edge: Edge) -> None:
        self._outgoing[edge.source].append((index, edge))
        target = edge.target if edge.target in self.nodes else _ANYWHERE
        if target is not _ANYWHERE:
            self.edges.append((index, edge))
        self._targets[edge.source].add(target)
        self._origins[target].add(edge.source)
        # Edges out of an end, which are faults, are never followed.
        if not isinstance(self.nodes[edge.source], EndNode):
            self._earlier[target].add(edge.source)

    def keys_of(self, node_id: str) -> Keys:
        """Return the path of a node in its file."""
        return ("nodes", self._source.nodes[node_id][0])

    def find_earlier(self, node_id: str) -> set[str]:
        """Return the nodes that may have run before a node; in a loop, also the node itself."""
        return {each for each in _follow([node_id], self._earlier) if each is not _ANYWHERE}

    def check(self) -> None:
        """Add all faults of the graph to the document."""
        self._check_names()
        starts = self._check_start()
        self._check_ends()
        if starts:
            self._check_ways(starts)
        for node_id, node in self.nodes.items():
            if node is not None:
                self._check_labels(node_id, node)
        self._check_parallel(starts)

    def _check_names(self) -> None:
        known = list(self.nodes)
        reserved = RESERVED | _STATE_WORDS
        for parallel in find_joins(self.nodes.values()):
            branches = range(len(self._outgoing[parallel]))
            reserved |= {branch_join(parallel), *(branch_end(parallel, each) for each in branches)}
        for node_id in known:
            if node_id in reserved or node_id.startswith("__"):
                problem = f"{node_id!r} is reserved; choose another id, such as {node_id}_node"
                self._document.add((*self.keys_of(node_id), "id"), problem)
        for index, edge in self._source.edges:
            if self._document.is_full:
                return
            for key, node_id in (("from", edge.source), ("to", edge.target)):
                if node_id not in self.nodes:
                    problem = f"there is no node {node_id!r}; {suggest(node_id, known)}"
                    self._document.add(("edges", index, key), problem)

    def _check_start(self) -> list[str]:
        starts = [node_id for node_id, node in self.nodes.items() if isinstance(node, StartNode)]
        if not starts and None not in self.nodes.values():
            self._document.add(("nodes",), "there is no start; add a node of type start")
        for node_id in starts[1:]:
            first = self._document.locate(self.keys_of(starts[0])).line
            problem = f"is a second start; the first one is in line {first}"
            self._document.add(self.keys_of(node_id), problem)
        for index, edge in self.edges:
            if isinstance(self.nodes[edge.target], StartNode):
                problem = "leads to the start; lead to the node after it"
                self._document.add(("edges", index, "to"), problem)
        return starts

    def _check_ends(self) -> None:
        ends = [node_id for node_id, node in self.nodes.items() if isinstance(node, EndNode)]
        if not ends:
            if None not in self.nodes.values():
                self._document.add(("nodes",), "there is no end; add a node of type end")
            return
        # A node with faults may be an end.
        goals = {*ends, *(node_id for node_id, node in self.nodes.items() if node is None)}
        arriving = _follow(goals, self._origins) | goals
        for node_id in self.nodes:
            if node_id not in arriving:
                problem = (
                    "has no way to an end; add an edge to the node that follows"
                    if not self._outgoing[node_id]
                    else "has no way to an end: no edge leads to one; add an edge out of here"
                )
                self._document.add(self.keys_of(node_id), problem)
        for index, edge in self.edges:
            if isinstance(self.nodes[edge.source], EndNode):
                problem = f"leads out of the end {edge.source!r}; nothing runs after an end"
                self._document.add(("edges", index, "from"), problem)

    def _check_ways(self, starts: Sequence[str]) -> None:
        reached = _follow(starts, self._targets) | {*starts}
        for node_id in self.nodes:
            if node_id not in reached:
                problem = "is not reachable from the start; add an edge that leads to it"
                self._document.add(self.keys_of(node_id), problem)

    def _check_labels(self, node_id: str, node: Node) -> None:
        edges = self._outgoing[node_id]
        if isinstance(node, EndNode) or not edges:
            return
        if isinstance(node, ParallelNode):
            for index, edge in edges:
                if edge.condition:
                    problem = "has a condition; all edges of a parallel node are followed"
                    self._document.add(("edges", index, "condition"), problem)
            return
        labels = list_labels(node)
        if labels is not None:
            self._check_missing_edges(node_id, labels)
        # Labels of functions are known only when they run.
        named = [edge.condition for _, edge in edges if edge.condition]
        possible = [*(labels if labels is not None else [OK, *named]), FAILED]
        followed = [find_edge([edge for _, edge in edges], label) for label in possible]
        for index, edge in edges:
            if edge.condition and edge.condition not in possible:
                problem = (
                    f"node {node_id!r} never has the label {edge.condition!r}; "
                    f"{suggest(edge.condition, possible)}"
                )
                self._document.add(("edges", index, "condition"), problem)
            elif not any(edge is other for other in followed):
                problem = (
                    "is never followed: other edges of the node come first; give it a condition or "
                    "a priority, or make the node parallel"
                )
                self._document.add(("edges", index), problem)

    def _check_missing_edges(self, node_id: str, labels: Sequence[str]) -> None:
        edges = [edge for _, edge in self._outgoing[node_id]]
        for label in labels:
            if find_edge(edges, label) is None:
                problem = f"its label {label!r} has no edge; add one with `condition: {label}`"
                if label == OK:
                    problem = "has no edge to follow when it succeeds; add one without a condition"
                self._document.add(self.keys_of(node_id), problem)

    def _check_parallel(self, starts: Sequence[str]) -> None:
        joins = find_joins(self.nodes.values())
        is_complete = bool(starts)
        for node_id, join in joins.items():
            keys: Keys = (*self.keys_of(node_id), "join")
            if join not in self.nodes or join == node_id:
                problem = f"there is no node {join!r}; {suggest(join, list(self.nodes))}"
                self._document.add(
                    keys, problem if join != node_id else "is the parallel node itself"
                )
                is_complete = False
                continue
            edges = self._outgoing[node_id]
            if len(edges) < 2:
                problem = "has less than two branches; add edges, or make it another node"
                self._document.add(self.keys_of(node_id), problem)
            for index, edge in edges:
                if edge.target not in self.nodes or edge.target == join:
                    continue
                if join not in _follow([edge.target], self._targets):
                    problem = f"this branch does not arrive at the join {join!r}; lead it there"
                    self._document.add(("edges", index), problem)
        if is_complete and joins:
            self._check_branches(starts[0], joins)

    def _check_branches(self, start: str, joins: Mapping[str, str]) -> None:
        outgoing = {
            node_id: [edge for _, edge in edges] for node_id, edges in self._outgoing.items()
        }
        scopes, conflicts = find_branches(start, outgoing, joins)
        for source, number, scope, other in conflicts:
            index, edge = self._outgoing[source][number]
            if edge.target in self.nodes:
                problem = (
                    f"leads to {edge.target!r}, which is {_describe(other)}, from "
                    f"{_describe(scope)}; branches meet only at their join"
                )
                self._document.add(("edges", index, "to"), problem)
        for node_id, scope in scopes.items():
            if scope and isinstance(self.nodes.get(node_id), EndNode):
                join = joins[scope[-1][0]]
                problem = f"is an end inside a branch; lead to the join {join!r} instead"
                self._document.add(self.keys_of(node_id), problem)


def list_labels(node: Node) -> list[str] | None:
    """Return the labels that a node can have, without `failed`, unless a function decides."""
    match node:
        case ConditionNode() if node.handler:
            return None
        case ConditionNode():
            labels = [case.label for case in node.cases]
            is_exhaustive = any(case.when.strip() == "true" for case in node.cases)
            return labels if is_exhaustive else [*labels, node.otherwise]
        case ApprovalNode():
            return ["approved", "rejected"]
        case WaitNode() if node.message and node.duration:
            return [OK, "timeout"]
    return [OK]


def _describe(scope: Scope) -> str:
    if not scope:
        return "outside all branches"
    parallel, number = scope[-1]
    return f"in branch {number + 1} of {parallel!r}"


def _follow(begin: Iterable[str | None], ways: _Ways) -> set[str | None]:
    """Return all nodes on the ways from some nodes; these only if a way leads back to them."""
    reached: set[str | None] = set()
    pending = list(begin)
    while pending:
        for node_id in ways[pending.pop()]:
            if node_id not in reached:
                reached.add(node_id)
                pending.append(node_id)
    return reached
