"""The differences of two versions of a workflow: as lines that people read, and of their graphs."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trunkline.core.json_types import JsonValue
from trunkline.workflows.builders import workflow_to_dict
from trunkline.workflows.definition import Workflow

_ABSENT: Final = object()
_VALUE_CHARS: Final = 120


def list_differences(old: Workflow, new: Workflow) -> list[str]:
    """Return a line for each difference: `+` added, `-` removed, `~` changed."""
    before, after = workflow_to_dict(old), workflow_to_dict(new)
    lines = list(_compare("", _without_graph(before), _without_graph(after)))
    lines += _compare_items("node", _index_nodes(before), _index_nodes(after))
    lines += _compare_items("edge", _index_edges(before), _index_edges(after))
    return lines


def compare_graphs(old: Workflow, new: Workflow) -> dict[str, dict[str, list[Any]]]:
    """Return the `nodes` and `edges` that were `added`, `removed` and `changed`, as JSON."""
    before, after = workflow_to_dict(old), workflow_to_dict(new)
    return {
        "nodes": _group_items(_index_nodes(before), _index_nodes(after)),
        "edges": _group_items(_index_edges(before), _index_edges(after)),
    }


def _group_items(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {
        "added": [item for name, item in new.items() if name not in old],
        "removed": [item for name, item in old.items() if name not in new],
        "changed": [
            {"id": name, "before": old[name], "after": item}
            for name, item in new.items()
            if name in old and old[name] != item
        ],
    }


def _without_graph(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in {"nodes", "edges"}}


def _index_nodes(value: Mapping[str, Any]) -> dict[str, Any]:
    return {node["id"]: node for node in value["nodes"]}


def _index_edges(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return edges by a text. Several of one text are numbered."""
    edges: dict[str, Any] = {}
    for edge in value.get("edges", ()):
        label = f" when {edge['condition']}" if edge.get("condition") else ""
        name = text = f"{edge['from']} -> {edge['to']}{label}"
        number = 1
        while name in edges:
            number += 1
            name = f"{text} ({number})"
        edges[name] = edge
    return edges


def _compare_items(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"- {kind} {name}"
        elif name not in old:
            yield f"+ {kind} {name}{_describe(kind, new[name])}"
        else:
            yield from _compare(f"{kind} {name}: ", old[name], new[name])


def _describe(kind: str, value: Mapping[str, Any]) -> str:
    return f" ({value['type']})" if kind == "node" else ""


def _compare(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _compare(f"{where}{key}.", before, after)
        elif before is _ABSENT:
            yield f"+ {where}{key} = {_render(after)}"
        elif after is _ABSENT:
            yield f"- {where}{key} (was {_render(before)})"
        else:
            yield f"~ {where}{key}: {_render(before)} -> {_render(after)}"


def _render(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 1]}…"
