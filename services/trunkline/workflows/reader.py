"""Reads workflows: YAML and JSON files, and dictionaries, in two forms.

The form of our own is `trunkline.workflows.definition`. The other one has `from_node` and `to_node`
in its edges, and `handler` and `config` in its nodes; it is converted to ours.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import TypeAdapter, ValidationError

from trunkline.names import MAX_NAME_CHARS, NAME_RULE
from trunkline.workflows.definition import Edge, Node, StartNode, Workflow
from trunkline.workflows.documents import MAX_BYTES, Keys, SourceDocument, parse_document

_NODE: Final[TypeAdapter[Node]] = TypeAdapter(Node)
_NODE_CLASSES: Final = get_args(get_args(Node)[0])
NODE_TYPES: Final = {cls.model_fields["type"].default: cls for cls in _NODE_CLASSES}
"""The class of each node type."""
_CLOSE: Final = 0.65
"""The likeness of words from which one may stand for the other, so that `gone` is no `lonely`."""
_STUB: Final = {"nodes": [StartNode(id="start")], "edges": []}
_PATTERNS: Final = {
    "timeout": "a time such as 30s, 10m or 2h",
    "duration": "a time such as 30s, 10m or 2h",
    "time": "a time such as 30s, 10m or 2h",
    "backoff": "a time such as 30s, 10m or 2h",
    "max_backoff": "a time such as 30s, 10m or 2h",
}
_NAMES: Final = f"{NAME_RULE}, such as review-text"


@dataclass(slots=True)
class WorkflowSource:
    """A workflow as it was read, also if it has faults."""

    document: SourceDocument
    workflow: Workflow | None = None
    """The workflow; None: its shape has faults."""
    nodes: dict[str, tuple[int, Node | None]] = field(default_factory=dict)
    """By id, the index of each node in the file, and the node; None: it has faults."""
    edges: list[tuple[int, Edge]] = field(default_factory=list)
    """The edges without faults, with their indexes in the file."""
    inputs: Mapping[str, Any] | None = None


def suggest(word: str, known: Sequence[str]) -> str:
    """Return a text that names the known word that is meant, else all of them."""
    near = get_close_matches(word, known, n=1, cutoff=_CLOSE)
    if near:
        return f"did you mean {near[0]!r}?"
    names = sorted(known)
    if not names:
        return "there is none"
    return f"there are: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def read_source(path: Path) -> WorkflowSource:
    """Read a file. Its faults of syntax and shape are in the result.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    return parse_source(content, str(path))


def parse_source(content: bytes, file: str) -> WorkflowSource:
    """Parse the content of a file, whose name decides: JSON if it ends so, else YAML."""
    return _read_document(parse_document(content, file))


def convert_source(value: Mapping[str, Any], name: str = "workflow") -> WorkflowSource:
    """Read a dictionary, which has no lines. `name` stands for the file in faults."""
    return _read_document(SourceDocument(name, dict(value)))


def _read_document(document: SourceDocument) -> WorkflowSource:
    source = WorkflowSource(document)
    value = document.value
    if document.faults and value is None:
        return source
    if not isinstance(value, Mapping):
        document.add((), "is no workflow; it needs `name`, `nodes` and `edges`")
        return source
    _check_start_node(document, value)
    value = convert_dictionary_form(value, Path(document.file).stem)
    header = {key: item for key, item in value.items() if key not in {"nodes", "edges"}}
    try:
        workflow = Workflow.model_validate({**header, **_STUB})
        source.inputs = workflow.inputs
    except ValidationError as error:
        _add_faults(document, (), Workflow, error)
        workflow = None
        # Faults elsewhere in the header don't hide those of the variables.
        inputs = value.get("inputs")
        source.inputs = inputs if isinstance(inputs, Mapping) else None
    _read_nodes(source, value.get("nodes"))
    _read_edges(source, value.get("edges", []))
    if workflow is not None and not document.faults:
        nodes = [node for _, node in source.nodes.values() if node is not None]
        edges = [edge for _, edge in source.edges]
        source.workflow = workflow.model_copy(update={"nodes": tuple(nodes), "edges": tuple(edges)})
    return source


def _read_nodes(source: WorkflowSource, values: Any) -> None:  # noqa: ANN401  a JSON value
    document = source.document
    if not isinstance(values, list) or not values:
        document.add(("nodes",), "has to be a list of nodes, each with `id` and `type`")
        return
    for index, value in enumerate(values):
        keys: Keys = ("nodes", index)
        node: Node | None = None
        try:
            node = _NODE.validate_python(value)
        except ValidationError as error:
            node_type = value.get("type") if isinstance(value, dict) else None
            known = NODE_TYPES.get(node_type) if isinstance(node_type, str) else None
            _add_faults(document, keys, known, error)
            node = _read_rest(value, error)
        node_id = value.get("id") if isinstance(value, dict) else None
        if not isinstance(node_id, str):
            continue
        if node_id in source.nodes:
            first = document.locate(("nodes", source.nodes[node_id][0])).line
            problem = f"{node_id!r} is also the id of the node in line {first}; ids are unique"
            document.add((*keys, "id"), problem)
            continue
        source.nodes[node_id] = (index, node)


def _read_rest(value: Any, error: ValidationError) -> Node | None:  # noqa: ANN401  a JSON value
    """Return a node without its fields that have faults, so that the others are checked; or None.

    The source has faults, so the node is never run.
    """
    # In front of the field is the type of the node.
    wrong = {details["loc"][1] for details in error.errors() if len(details["loc"]) > 1}
    if not isinstance(value, dict) or "id" in wrong or not wrong & value.keys():
        return None
    try:
        return _NODE.validate_python({key: item for key, item in value.items() if key not in wrong})
    except ValidationError:
        return None


def _read_edges(source: WorkflowSource, values: Any) -> None:  # noqa: ANN401  a JSON value
    document = source.document
    if not isinstance(values, list):
        document.add(("edges",), "has to be a list of edges, each with `from` and `to`")
        return
    for index, value in enumerate(values):
        try:
            source.edges.append((index, Edge.model_validate(value)))
        except ValidationError as error:
            _add_faults(document, ("edges", index), Edge, error)
            wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
            if isinstance(value, dict) and wrong & value.keys():
                rest = {key: item for key, item in value.items() if key not in wrong}
                # Without its fields that have faults, it is still a way through the graph.
                with suppress(ValidationError):
                    source.edges.append((index, Edge.model_validate(rest)))


def _add_faults(
    document: SourceDocument, keys: Keys, model: type[Any] | None, error: ValidationError
) -> None:
    for details in error.errors(include_url=False, include_input=True):
        place = details["loc"]
        if keys[:1] == ("nodes",):
            # After the index, the type of the node.
            place = place[1:]
        place = tuple(_trim(place, details["type"]))
        document.add((*keys, *place), _describe(details, place, model))


def _trim(place: Sequence[str | int], kind: str) -> Iterator[str | int]:
    """Yield the keys of a place without the parts that name alternatives of a type."""
    for key in place:
        if isinstance(key, str) and (key in {"str", "dict"} or "[" in key):
            return
        yield key
    if kind == "missing" and not place:
        return


def _describe(details: Any, place: Keys, model: type[Any] | None) -> str:  # noqa: ANN401
    """Return what is wrong, and what would be right."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    name = str(place[-1]) if place else ""
    fields = _list_fields(model, place)
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return f"is not known here; {suggest(name, fields)}"
        case "union_tag_invalid":
            return f"{value.get('type')!r} is no type of a node; " + suggest(
                str(value.get("type")), list(NODE_TYPES)
            )
        case "union_tag_not_found":
            return f"has no `type`; it is one of: {', '.join(NODE_TYPES)}"
        case "string_pattern_mismatch" if name == "handler":
            return f"{value!r} is no function; write module:name"
        case "string_pattern_mismatch":
            return f"{value!r} is not {_PATTERNS.get(name, _NAMES)}"
        case "literal_error":
            return f"{value!r} is not one of {context.get('expected')}"
        case "string_type" if isinstance(value, bool | int | float):
            return f"has to be a text; write {str(value).lower()!r} with quotes"
    text: str = details["msg"]
    return text[:1].lower() + text[1:]


def _list_fields(model: type[Any] | None, place: Keys) -> list[str]:
    """Return the fields that the object around a place may have."""
    for key in place[:-1]:
        if isinstance(key, str):
            annotation = getattr(model, "model_fields", {})[key].annotation
            models = [each for each in (annotation, *get_args(annotation)) if _has_fields(each)]
            model = models[0] if models else None
    fields = getattr(model, "model_fields", {})
    return [info.alias or name for name, info in fields.items()]


def _has_fields(annotation: object) -> bool:
    return hasattr(annotation, "model_fields")


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


def _check_start_node(document: SourceDocument, value: Mapping[str, Any]) -> None:
    """Add a fault if the `start_node` of the other form names no node, or not the one it has."""
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
    start: Any,  # noqa: ANN401  a JSON value
) -> tuple[list[Any], list[Any]]:
    """Return nodes and edges with a node of type start in front of the node that begins a run."""
    ids = {node["id"] for node in nodes if isinstance(node, dict) and _has_id(node)}
    if not isinstance(start, str) or start not in ids or _list_starts(nodes):
        return nodes, edges
    name = "start"
    while name in ids:
        name += "_"
    # At the end, so that the places of the others stay those of the file.
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


def _convert_node(node: Any) -> Any:  # noqa: ANN401  a JSON value
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


def _convert_edge(edge: Any) -> Any:  # noqa: ANN401  a JSON value
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
