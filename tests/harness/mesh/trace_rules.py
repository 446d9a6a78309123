"""Rules of a correct trace: the parents of its spans, and the names of their attributes."""

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from opentelemetry.semconv import _incubating, attributes

from trunkline.core.json_values import read_text, struct_json
from trunkline.v1 import trace_service_pb2

Span = trace_service_pb2.Span

OWN_NAMESPACE: Final = "trunkline."
_VECTORS: Final = Path(__file__).parents[2] / "vectors" / "telemetry_names.json"

# What each kind of span may be below. Within a process, a call has only its SERVER span.
PARENTS: Final[Mapping[str, frozenset[str]]] = {
    "rpc server": frozenset(
        {"rpc client", "request", "turn", "call", "tool", "node", "process", "send"}
    ),
    "rpc client": frozenset({"request", "turn", "call", "tool", "node", "process", "send"}),
    "turn": frozenset({"rpc server", "process"}),
    "node": frozenset({"turn", "node"}),
    "plan": frozenset({"node"}),
    "call": frozenset({"turn", "node"}),
    "tool": frozenset({"turn", "node"}),
    "chat": frozenset({"turn", "node", "plan"}),
    "mcp client": frozenset({"rpc server"}),
    "mcp server": frozenset({"mcp client"}),
    "send": frozenset({"rpc server", "process"}),
    "process": frozenset({"send"}),
    "webhook": frozenset({"rpc server"}),
}


_OPERATIONS: Final = {
    ("invoke_agent", "INTERNAL"): "turn",
    ("invoke_workflow", "INTERNAL"): "turn",
    ("invoke_agent", "CLIENT"): "call",
    ("plan", "INTERNAL"): "plan",
    ("chat", "CLIENT"): "chat",
    ("execute_tool", "INTERNAL"): "tool",
}


_TOOL: Final = "gen_ai.tool.name"
_NAMES: Final = {"POST webhook": "webhook"}


def label(span: Span) -> str:
    """Return what kind of span it is."""
    kind = trace_service_pb2.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
    names = struct_json(span.attributes)
    if (operation := (names.get("gen_ai.operation.name"), kind)) in _OPERATIONS:
        return _OPERATIONS[operation]
    if span.service == "bridge" and kind == "SERVER":
        return "request"
    if span.name in _NAMES or span.name.startswith("run_node "):
        return _NAMES.get(span.name, "node")
    for name, system in (("mcp.method.name", "mcp"), ("rpc.system.name", "rpc")):
        if name in names:
            return f"{system} {kind.lower()}"
    return names.get("messaging.operation.type") or f"unknown: {kind} {span.name}"


def wrong_parents(spans: Sequence[Span]) -> list[str]:
    """Return each span below one that can't have made it."""
    known = {span.span_id: span for span in spans}
    return [
        f"{span.service} {span.name} [{label(span)}] below {parent.name} [{label(parent)}]"
        for span in spans
        if (parent := known.get(span.parent_span_id)) is not None
        and label(parent) not in PARENTS.get(label(span), ())
    ]


def wrong_attributes(spans: Sequence[Span]) -> list[str]:
    """Return each span that lacks an attribute which its kind needs, or has one that it must not.

    Spans that are stand-ins, or come from elsewhere, have no rules.
    """
    rules: dict[str, dict[str, Any]] = other_names()["spans"]
    problems: list[str] = []
    for span in spans:
        if (rule := rules.get(label(span))) is None:
            continue
        names = {name for name, value in struct_json(span.attributes).items() if value != ""}
        missing, wrong = set(rule["required"]) - names, set(rule["excluded"]) & names
        problems += (f"{span.service} {span.name} lacks {name}" for name in sorted(missing))
        problems += (f"{span.service} {span.name} has {name}" for name in sorted(wrong))
        problems += _wrong_mcp_names(span)
    return problems


def _wrong_mcp_names(span: Span) -> Iterator[str]:
    """Yield what is wrong with the name and the tool of a client's span of MCP."""
    if label(span) != "mcp client":
        return
    method = read_text(span.attributes, "mcp.method.name")
    if span.name.partition(" ")[0] != method:
        yield f"{span.service} {span.name} is not named by {method}"
    if method == "tools/call" and span.name != f"{method} {read_text(span.attributes, _TOOL)}":
        yield f"{span.service} {span.name} is not named by its tool"


@cache
def published_names() -> frozenset[str]:
    """Return the attributes that OpenTelemetry and the file of the others publish."""
    names: set[str] = set()
    for package in (attributes, importlib.import_module(f"{_incubating.__name__}.attributes")):
        for found in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{found.name}")
            constants = {key: value for key, value in vars(module).items() if key.isupper()}
            names |= {value for value in constants.values() if isinstance(value, str)}
    others = other_names()
    return frozenset((names - set(others["withdrawn"])) | set(others["attributes"]))


def other_names() -> dict[str, Any]:
    """Return the names that the package lacks, with their sources, and those withdrawn since."""
    read: dict[str, Any] = json.loads(_VECTORS.read_text())
    return read


def unpublished_names(spans: Sequence[Span]) -> set[str]:
    """Return attributes that are in no published list, and not in our own namespace."""
    found = {name for span in spans for name in struct_json(span.attributes)}
    # The MCP SDK still has the old name.
    known = published_names() | {"rpc.response.status_code"}
    return {name for name in found - known if not name.startswith(OWN_NAMESPACE)}
