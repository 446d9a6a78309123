"""Short forms of workflows for tests."""

from itertools import pairwise
from typing import Any

from trunkline.workflows.definition import Workflow


def build(name: str, *nodes: dict[str, Any], edges: str, **fields: Any) -> Workflow:
    """Return a workflow. Edges are `a > b > c`, or `a > b: label`, one way a line.

    Nodes without a type have that of their id. `start` and `end` need no node.
    """
    given = [{"type": node["id"], **node} for node in nodes]
    known = {node["id"] for node in given}
    given += [{"id": each, "type": each} for each in ("start", "end") if each not in known]
    ways: list[dict[str, Any]] = []
    for line in filter(None, map(str.strip, edges.splitlines())):
        way, _, label = line.partition(":")
        ids = [each.strip() for each in way.split(">")]
        ways += [{"from": a, "to": b} for a, b in pairwise(ids)]
        if label:
            ways[-1]["condition"] = label.strip()
    return Workflow.model_validate({"name": name, "nodes": given, "edges": ways, **fields})


def agent_node(id: str, agent: str, message: str = "${last.text}", **fields: Any) -> dict[str, Any]:  # noqa: A002
    """Return a node that asks an agent."""
    return {"id": id, "type": "agent", "agent": agent, "message": message, **fields}


def action_node(id: str, **fields: Any) -> dict[str, Any]:  # noqa: A002
    """Return an action."""
    return {"id": id, "type": "action", **fields}
