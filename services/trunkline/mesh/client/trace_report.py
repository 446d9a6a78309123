"""A trace as the command line and the page describe it: the same rows, numbers and words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.core.json_values import find_member
from trunkline.mesh.client.trace_tree import SpanNode, SpanTiming, TraceTree, measure
from trunkline.observe import telemetry
from trunkline.v1 import json_pb2, trace_service_pb2

_NOTHING: Final = json_pb2.Value()


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """A row of a trace."""

    depth: int
    node: SpanNode
    offset_ns: int
    """The time from the start of the trace to the start of the span."""
    duration_ns: int | None
    """None while the span is open."""
    timing: SpanTiming
    is_model_call: bool
    input_tokens: int
    """0 except for calls of models, because other spans repeat the tokens of those calls."""
    output_tokens: int
    cost_micros: int
    """In millionths of a US dollar; 0 without a price."""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A trace as rows in the order in which they are shown, and its totals."""

    trace_id: str
    rows: Sequence[SpanFacts]
    duration_ns: int
    """The time from the first start to the last known end."""
    services: Sequence[str]
    """In the order of their first rows."""
    errors: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost_micros: int

    @classmethod
    def build(cls, tree: TraceTree) -> "TraceReport":
        """Describe a trace of at least one span."""
        nodes = list(tree.walk())
        timings = measure(tree)
        start_ns = min(node.span.start_time.ToNanoseconds() for _, node in nodes)
        rows = [_describe(depth, node, start_ns, timings) for depth, node in nodes]
        models = [row for row in rows if row.is_model_call]
        return cls(
            nodes[0][1].span.trace_id,
            rows,
            max(row.offset_ns + (row.duration_ns or 0) for row in rows),
            list(dict.fromkeys(row.node.span.service for row in rows)),
            sum(row.node.span.is_error for row in rows),
            len(models),
            sum(row.input_tokens for row in models),
            sum(row.output_tokens for row in models),
            sum(row.cost_micros for row in models),
        )


def _describe(
    depth: int, node: SpanNode, start_ns: int, timings: dict[str, SpanTiming]
) -> SpanFacts:
    span = node.span
    begin_ns = span.start_time.ToNanoseconds()
    is_model_call = _read(span, telemetry.GEN_AI_OPERATION_NAME).string_value == telemetry.CHAT

    def count(name: str) -> int:
        return int(_read(span, name).number_value) if is_model_call else 0

    return SpanFacts(
        depth,
        node,
        begin_ns - start_ns,
        span.end_time.ToNanoseconds() - begin_ns if span.HasField("end_time") else None,
        timings[span.span_id],
        is_model_call,
        count(telemetry.GEN_AI_USAGE_INPUT_TOKENS),
        count(telemetry.GEN_AI_USAGE_OUTPUT_TOKENS),
        count(telemetry.MODEL_COST_MICROS),
    )


def _read(span: trace_service_pb2.Span, name: str) -> json_pb2.Value:
    return find_member(span.attributes, name) or _NOTHING
