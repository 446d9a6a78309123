"""Converts the dictionary form of workflows to ours.

The dictionary form has `from_node` and `to_node` in its edges, and `handler` and `config` in its
nodes. A run of it begins at `start_node`.
"""

import re
from collections.abc import Mapping
from typing import Any

from trunkline.core.json_types import JsonValue
from trunkline.core.names import MAX_NAME_CHARS
from trunkline.core.source_documents import SourceDocument, suggest


def convert_dictionary_form(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a dictionary of the other form in ours, with the same order; others unchanged."""
    nodes, edges = value.get("nodes"), value.get("edges", [])
    if not isinstance(nodes, list) or not isinstance(edges, list):
        return value
    is_other = (
        "start_node" in value
        or any(isinstance(edge, dict) and "from_node" in edge for edge in edges)
        or any(
            isinstance(node, dict) and node.get("type") == "agent" and "handler" in node
            for node in nodes
        )
    )
    if not is_other:
        return value
    converted = {key: item for key, item in value.items() if key != "start_node"}
    nodes, edges = _add_start(nodes, edges, value.get("start_node"))
    default_name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME_CHARS].strip("-")
    return {
        "name": default_name or "workflow",
        **converted,
        "nodes": [_convert_node(node) for node in nodes],
        "edges": [_convert_edge(edge) for edge in edges],
    }


def check_start_node(document: SourceDocument, value: Mapping[str, Any]) -> None:
    """Add a fault if the `start_node` of the other form names no node, or another node."""
    start, nodes = value.get("start_node"), value.get("nodes")
    if start is None or not isinstance(nodes, list):
        return
    ids = [node["id"] for node in nodes if isinstance(node, dict) and _has_id(node)]
    starts = _list_starts(nodes)
    if start not in ids:
        document.add(("start_node",), f"there is no node {start!r}; {suggest(str(start), ids)}")
    elif starts and start not in starts:
        problem = f"is {start!r}, but {starts[0]!r} is a node of type start; name that one"
        document.add(("start_node",), f"{problem}, or remove it")


def _add_start(
    nodes: list[Any],
    edges: list[Any],
    start: JsonValue,
) -> tuple[list[Any], list[Any]]:
    """Return nodes and edges with a node of type start in front of the node that begins a run."""
    ids = {node["id"] for node in nodes if isinstance(node, dict) and _has_id(node)}
    if not isinstance(start, str) or start not in ids or _list_starts(nodes):
        return nodes, edges
    name = "start"
    while name in ids:
        name += "_"
    # At the end, so that the other nodes keep their places in the file.
    return [*nodes, {"id": name, "type": "start"}], [*edges, {"from": name, "to": start}]


def _list_starts(nodes: list[Any]) -> list[str]:
    """Return the ids of the nodes of type start."""
    return [
        node["id"]
        for node in nodes
        if isinstance(node, dict) and node.get("type") == "start" and _has_id(node)
    ]


def _has_id(node: dict[str, Any]) -> bool:
    return isinstance(node.get("id"), str)


def _convert_node(node: JsonValue) -> JsonValue:
    if not isinstance(node, dict):
        return node
    rest = {key: item for key, item in node.items() if key not in {"handler", "config"}}
    if isinstance(rest.get("id"), str):
        rest["id"] = _convert_id(rest["id"])
    handler, config = node.get("handler") or "", node.get("config") or {}
    match rest.get("type"):
        case "agent" if "handler" in node or "agent" not in rest:
            rest["agent"] = handler
        case "condition":
            rest["handler"] = handler
        case "action":
            return rest | {"handler": handler, "config": config}
    return rest | config if isinstance(config, dict) else rest | {"config": config}


def _convert_edge(edge: JsonValue) -> JsonValue:
    if not isinstance(edge, dict):
        return edge
    names = {"from_node": "from", "to_node": "to"}
    converted = {names.get(key, key): item for key, item in edge.items()}
    for key in ("from", "to"):
        if isinstance(converted.get(key), str):
            converted[key] = _convert_id(converted[key])
    if converted.get("condition", "") is None:
        converted["condition"] = ""
    elif isinstance(converted.get("condition"), bool):
        converted["condition"] = str(converted["condition"]).lower()
    return converted


def _convert_id(name: str) -> str:
    """Return an id as an identifier, which expressions can read."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return text if not text[:1].isdigit() else f"_{text}"
