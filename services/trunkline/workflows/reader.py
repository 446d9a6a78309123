"""Reads workflows: YAML and JSON files, and dictionaries, in two forms.

`trunkline.workflows.definition` is our form. `trunkline.workflows.dictionary_form` converts the
other form to ours.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from trunkline.durations import DURATION_PATTERN
from trunkline.names import NAME_RULE
from trunkline.source_documents import (
    MAX_BYTES,
    Keys,
    SourceDocument,
    parse_document,
    suggest,
)
from trunkline.workflows.definition import Edge, Node, Workflow
from trunkline.workflows.dictionary_form import check_start_node, convert_dictionary_form

_NODE: Final[TypeAdapter[Node]] = TypeAdapter(Node)
_EDGE: Final[TypeAdapter[Edge]] = TypeAdapter(Edge)
_NODE_CLASSES: Final = get_args(get_args(Node)[0])
NODE_TYPES: Final = {cls.model_fields["type"].default: cls for cls in _NODE_CLASSES}
"""The class of each node type."""
_LISTS: Final = {
    "nodes": "has to be a list of nodes, each with `id` and `type`",
    "edges": "has to be a list of edges, each with `from` and `to`",
}
_PATTERNS: Final = {DURATION_PATTERN: "a time such as 30s, 10m or 2h"}
_NAMES: Final = f"{NAME_RULE}, such as review-text"
_Member = TypeVar("_Member")


@dataclass(slots=True)
class WorkflowSource:
    """A workflow as it was read, also if it has faults."""

    document: SourceDocument
    workflow: Workflow | None = None
    """The workflow, unless its shape has faults."""
    nodes: dict[str, tuple[int, Node | None]] = field(default_factory=dict)
    """By id, the index of each node in the file, and the node unless it can't be read."""
    edges: list[tuple[int, Edge]] = field(default_factory=list)
    """The edges that can be read, with their indexes in the file."""
    inputs: Mapping[str, Any] | None = None


def read_source(path: Path) -> WorkflowSource:
    """Read a file. Its faults of syntax and shape are in the result.

    Raises:
        OSError: the file can't be read.
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
    check_start_node(document, value)
    value = convert_dictionary_form(value, Path(document.file).stem)
    inputs = value.get("inputs")
    source.inputs = inputs if isinstance(inputs, Mapping) else None
    wrong: Mapping[Keys, set[str | int]] = {}
    try:
        workflow = Workflow.model_validate(value)
        lists = {"nodes": tuple(workflow.nodes), "edges": tuple(workflow.edges)}
        source.workflow = workflow.model_copy(update=lists)
    except ValidationError as error:
        wrong = _add_faults(document, error)
    for index, given, node in _read_members(value, "nodes", _NODE, wrong):
        node_id = given.get("id") if isinstance(given, dict) else None
        if not isinstance(node_id, str):
            continue
        if node_id in source.nodes:
            first = document.locate(("nodes", source.nodes[node_id][0])).line
            problem = f"{node_id!r} is also the id of the node in line {first}; ids are unique"
            document.add(("nodes", index, "id"), problem)
            continue
        source.nodes[node_id] = index, node
    for index, _, edge in _read_members(value, "edges", _EDGE, wrong):
        if edge is not None:
            source.edges.append((index, edge))
    return source


def _read_members(
    value: Mapping[str, Any],
    name: str,
    adapter: TypeAdapter[_Member],
    wrong: Mapping[Keys, set[str | int]],
) -> Iterator[tuple[int, Any, _Member | None]]:
    """Yield the index of each node or edge, its JSON, and what it says unless it can't be read.

    A member with wrong fields is read without them, so that they hide no other fault. Such a
    workflow is never run.
    """
    members = value.get(name)
    for index, given in enumerate(members if isinstance(members, list | tuple) else ()):
        member: _Member | None = None
        if isinstance(given, dict):
            without = wrong.get((name, index), ())
            rest = {key: item for key, item in given.items() if key not in without}
            with suppress(ValidationError):
                member = adapter.validate_python(rest)
        yield index, given, member


def _add_faults(document: SourceDocument, error: ValidationError) -> Mapping[Keys, set[str | int]]:
    """Add the faults of the shape. Return the names of the wrong fields of each node and edge."""
    wrong: defaultdict[Keys, set[str | int]] = defaultdict(set)
    for details in error.errors(include_url=False):
        keys, place, model = _split_place(details["loc"])
        if keys and place:
            wrong[keys].add(place[0])
        document.add((*keys, *place), _describe(details, place, model))
    return wrong


def _split_place(place: Keys) -> tuple[Keys, Keys, type[BaseModel] | None]:
    """Return the place of the node or edge, the place within it, and its model.

    Pydantic adds the type of a node to the place, and the alternatives of a type, such as `str`.
    """
    place = tuple(takewhile(_is_key, place))
    match place:
        case ("nodes", int(index)):
            return ("nodes", index), (), None
        case ("nodes", int(index), str(node_type), *rest):
            return ("nodes", index), tuple(rest), NODE_TYPES[node_type]
        case ("edges", int(index), *rest):
            return ("edges", index), tuple(rest), Edge
    return (), place, Workflow


def _is_key(key: str | int) -> bool:
    return isinstance(key, int) or not (key in {"str", "dict"} or "[" in key)


def _describe(details: Any, place: Keys, model: type[BaseModel] | None) -> str:  # noqa: ANN401
    """Return the fault in words, and what would be right."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    name = str(place[-1]) if place else ""
    match kind:
        case _ if model is Workflow and name in _LISTS and len(place) == 1:
            return _LISTS[name]
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return f"is not known here; {suggest(name, _list_fields(model, place))}"
        case "union_tag_invalid":
            near = suggest(str(value.get("type")), list(NODE_TYPES))
            return f"{value.get('type')!r} is no type of a node; {near}"
        case "union_tag_not_found":
            return f"has no `type`; it is one of: {', '.join(NODE_TYPES)}"
        case "string_pattern_mismatch":
            return f"{value!r} is not {_PATTERNS.get(context['pattern'], _NAMES)}"
        case "literal_error":
            return f"{value!r} is not one of {context.get('expected')}"
        case "string_type" if isinstance(value, bool | int | float):
            return f"has to be a text; write {str(value).lower()!r} with quotes"
    text: str = details["msg"]
    return text[:1].lower() + text[1:]


def _list_fields(model: type[BaseModel] | None, place: Keys) -> list[str]:
    """Return the fields that the object around a place may have."""
    for key in place[:-1]:
        if isinstance(key, str) and model is not None:
            annotation = model.model_fields[key].annotation
            found = [each for each in (annotation, *get_args(annotation)) if _is_model(each)]
            model = found[0] if found else None
    fields = {} if model is None else model.model_fields
    return [info.alias or name for name, info in fields.items()]


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
