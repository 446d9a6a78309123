"""Spans that a test stores in the mesh's span store, as a process exports them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.trace.v1 import trace_pb2

from harness.a2a.page_mesh import PageMesh
from trunkline.observe import telemetry
from trunkline.observe.traces.spans import read_records

_BEGIN_NS = 1_800_000_000 * 10**9


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """A span; its times are milliseconds after the begin of the trace."""

    id: int
    name: str
    parent: int = 0
    start_ms: int = 0
    end_ms: int | None = 100
    """None: its process was killed before its end."""
    service: str = "agent"
    is_error: bool = False
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)


def store_trace(page: PageMesh, number: int, spans: Sequence[StoredSpan]) -> str:
    """Store spans of a trace; return its id."""
    resource = trace_pb2.ResourceSpans()
    scope = resource.scope_spans.add()
    begin_ns = _BEGIN_NS + number * 10**9
    for span in spans:
        added = scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=span.id.to_bytes(8, "big"),
            parent_span_id=span.parent.to_bytes(8, "big") if span.parent else b"",
            name=span.name,
            kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=begin_ns + span.start_ms * 10**6,
        )
        if span.end_ms is not None:
            added.end_time_unix_nano = begin_ns + span.end_ms * 10**6
        if span.is_error:
            added.status.code = trace_pb2.Status.STATUS_CODE_ERROR
            added.status.message = "it failed"
        for key, value in {telemetry.SERVICE: span.service, **span.attributes}.items():
            content = added.attributes.add(key=key).value
            if isinstance(value, bool):
                content.bool_value = value
            elif isinstance(value, int):
                content.int_value = value
            else:
                content.string_value = value
    page.spans.add(read_records([resource]))
    return number.to_bytes(16, "big").hex()
