"""OTLP spans as OpenTelemetry's own encoder makes them."""

from collections.abc import Mapping, Sequence

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from trunkline.observe.traces.encoding import encode

RESOURCE = Resource({"service.name": "tested", "service.version": "1"}, "https://schema.test/1")
SCOPE = InstrumentationScope("tested", "2", "https://schema.test/2")
LOCAL = SpanContext(2**128 - 1, 1, is_remote=False, trace_flags=TraceFlags(1))
REMOTE = SpanContext(1, 2**64 - 1, is_remote=True, trace_flags=TraceFlags(1))
STATEFUL = SpanContext(
    1, 2, is_remote=False, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "x")])
)
SCALARS: Mapping[str, str | bool | int | float] = {
    "text": "ä\n",
    "empty": "",
    "true": True,
    "false": False,
    "negative": -(2**63),
    "zero": 0,
    "fraction": 0.25,
}


def span(
    *,
    context: SpanContext = LOCAL,
    parent: SpanContext | None = None,
    attributes: Mapping[str, str | bool | int | float | Sequence[str]] | None = None,
    events: Sequence[Event] = (),
    links: Sequence[Link] = (),
    kind: SpanKind = SpanKind.INTERNAL,
    status: Status | None = None,
) -> ReadableSpan:
    return ReadableSpan(
        "a span",
        context=context,
        parent=parent,
        resource=RESOURCE,
        attributes=attributes,
        events=events,
        links=links,
        kind=kind,
        status=status or Status(),
        start_time=10**18,
        end_time=10**18 + 1,
        instrumentation_scope=SCOPE,
    )


SPANS = {
    "without attributes": span(),
    "scalar attributes": span(attributes=SCALARS),
    "a sequence as an attribute": span(attributes={"reasons": ("stop", "length")}),
    "a parent in the process": span(parent=LOCAL),
    "a parent elsewhere": span(parent=REMOTE),
    "a trace state": span(context=STATEFUL, parent=STATEFUL),
    "an event": span(events=[Event("retry", {"attempt": 2}, 10**18)]),
    "a link": span(links=[Link(REMOTE, {"why": "submitted"})]),
    "an error": span(status=Status(StatusCode.ERROR)),
    "an error with a text": span(status=Status(StatusCode.ERROR, "refused")),
    "ok": span(status=Status(StatusCode.OK)),
    **{f"kind {kind.name}": span(kind=kind) for kind in SpanKind},
}


@pytest.mark.parametrize("name", SPANS)
def test_a_span_is_encoded_as_by_opentelemetry(name: str) -> None:
    # The first span of each scope is always OpenTelemetry's work.
    spans = [span(), SPANS[name]]
    assert encode(spans) == encode_spans(spans)


def test_spans_of_a_tracer_are_encoded_as_by_opentelemetry() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        resource=RESOURCE, span_limits=SpanLimits(max_attributes=2, max_events=1, max_links=1)
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tested", "2")
    tracer.start_span("plain", attributes={"text": "x", "count": 1}).end()
    tracer.start_span("too many attributes", attributes=SCALARS).end()
    crowded = tracer.start_span("too many events")
    for number in range(3):
        crowded.add_event(f"event {number}")
        crowded.add_link(REMOTE)
    crowded.end()
    tracer.start_span("another plain one", attributes={"text": "y"}, kind=SpanKind.SERVER).end()
    spans = exporter.get_finished_spans()
    assert encode(spans) == encode_spans(spans)
    assert [encoded_span.dropped_attributes_count for encoded_span in _encoded(spans)] == [
        0,
        5,
        0,
        0,
    ]


def test_resources_and_scopes_stay_apart() -> None:
    other = Resource({"service.name": "other"})
    spans = [
        ReadableSpan(name, context=LOCAL, resource=resource, instrumentation_scope=SCOPE)
        for name, resource in (("one", RESOURCE), ("two", other), ("three", RESOURCE))
    ]
    names = [
        [encoded_span.name for scope in resource.scope_spans for encoded_span in scope.spans]
        for resource in encode(spans).resource_spans
    ]
    assert names == [["one", "three"], ["two"]]


def test_nothing_is_encoded_as_nothing() -> None:
    assert encode([]).ByteSize() == 0


def _encoded(spans: Sequence[ReadableSpan]) -> list[trace_pb2.Span]:
    return [
        encoded_span
        for resource in encode(spans).resource_spans
        for scope in resource.scope_spans
        for encoded_span in scope.spans
    ]
