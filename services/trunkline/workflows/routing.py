"""The ways through a workflow: which edges a label opens, and the branches of parallel nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from trunkline.workflows.definition import Edge, Node, ParallelNode, Workflow

OK: Final = "ok"
"""The label of a node that has no other one."""
FAILED: Final = "failed"
"""The label of a node that failed."""

Scope: TypeAlias = tuple[tuple[str, int], ...]
"""The branches that a node is in, outermost first: parallel nodes and the numbers of edges."""


def find_edge(edges: Sequence[Edge], label: str) -> Edge | None:
    """Return the edge to follow from a node with this label, if an edge fits."""
    fitting = [
        edge
        for edge in edges
        if edge.condition == label or (not edge.condition and label != FAILED)
    ]
    return max(fitting, key=lambda edge: edge.priority, default=None)


class ScopeConflict(NamedTuple):
    """An edge that leads from one branch into another."""

    source: str
    """The node that the edge leads out of."""
    number: int
    """The position of the edge among the edges out of this node."""
    scope: Scope
    """The scope that the edge arrives with."""
    other: Scope
    """The scope of its target, from another edge."""


class Branches(NamedTuple):
    """The branches of a workflow's parallel nodes."""

    scopes: Mapping[str, Scope]
    """The branches that each reachable node is in."""
    conflicts: Sequence[ScopeConflict]


def branch_end(parallel: str, number: int) -> str:
    """Return the name of the graph's node that runs a branch. It is reserved."""
    return f"{parallel}.{number}"


def branch_join(parallel: str) -> str:
    """Return the name of the graph's node where the branches meet. It is reserved."""
    return f"{parallel}.join"


def find_branches(
    start: str, outgoing: Mapping[str, Sequence[Edge]], joins: Mapping[str, str]
) -> Branches:
    """Follow all edges from the start, and return in which branches the nodes are.

    `outgoing` has the edges out of each node, `joins` the join of each parallel node.
    """
    scopes: dict[str, Scope] = {start: ()}
    conflicts: list[ScopeConflict] = []
    pending = [start]
    while pending:
        node = pending.pop()
        for number, edge in enumerate(outgoing.get(node, ())):
            scope = scopes[node]
            if node in joins:
                scope = (*scope, (node, number))
            # Of parallel nodes within each other that share a join, all branches end there.
            while scope and edge.target == joins[scope[-1][0]]:
                scope = scope[:-1]
            known = scopes.get(edge.target)
            if known is None:
                scopes[edge.target] = scope
                pending.append(edge.target)
            elif known != scope:
                conflicts.append(ScopeConflict(node, number, scope, known))
    return Branches(scopes, conflicts)


def find_joins(nodes: Iterable[Node | None]) -> dict[str, str]:
    """Return the join of each parallel node."""
    return {node.id: node.join for node in nodes if isinstance(node, ParallelNode)}


def group_edges(workflow: Workflow) -> dict[str, list[Edge]]:
    """Return the outgoing edges of each node, in the order of the file."""
    outgoing: dict[str, list[Edge]] = {}
    for edge in workflow.edges:
        outgoing.setdefault(edge.source, []).append(edge)
    return outgoing
