"""Our encoder writes what OpenTelemetry's own does."""

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer, use_span

from trunkline import telemetry
from trunkline.traces.encoding import encoded
from trunkline.traces.provider import MeshTracerProvider


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(params=[MeshTracerProvider, TracerProvider])
def tracer(request: pytest.FixtureRequest, exporter: InMemorySpanExporter) -> Iterator[Tracer]:
    provider = request.param("test") if request.param is MeshTracerProvider else request.param()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer(telemetry.TRACER_NAME)
    provider.shutdown()


def both_ways(exporter: InMemorySpanExporter) -> tuple[object, object]:
    spans: tuple[ReadableSpan, ...] = exporter.get_finished_spans()
    return encoded(spans), encode_spans(spans)


def test_plain_spans_are_the_same(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    attributes: dict[str, str | bool | int | float] = {
        "text": "x",
        "count": 1,
        "ratio": 1.0,
        "flag": True,
        "zero": 0,
        "none": "",
    }
    for kind in SpanKind:
        with tracer.start_as_current_span("outer", kind=kind, attributes=attributes) as outer:
            outer.set_status(StatusCode.ERROR, "why")
            with tracer.start_as_current_span("inner") as inner:
                inner.set_status(StatusCode.OK)
    ours, theirs = both_ways(exporter)
    assert len(exporter.get_finished_spans()) == 2 * len(SpanKind)
    assert ours == theirs


def test_texts_of_any_length_are_the_same(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    # Lengths take one, two and three bytes on the wire; characters up to four.
    for length in (0, 1, 100, 127, 128, 129, 16_383, 16_384, 20_000):
        attributes = {"a" * 200: "x" * length, "é€😀": "é€😀" * length}
        with tracer.start_as_current_span("é" * length, attributes=attributes) as span:
            span.set_status(StatusCode.ERROR, "😀" * length)
    ours, theirs = both_ways(exporter)
    assert ours == theirs


def test_uncommon_spans_are_the_same(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    carrier = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
    }
    other = tracer.start_span("other")
    below = tracer.start_span(
        "below", context=telemetry.extract(carrier), attributes={"list": ["a", "b"]}
    )
    below.add_event("retry", {"why": "busy"})
    below.add_link(other.get_span_context())
    with pytest.raises(ValueError, match="no"), use_span(other, end_on_exit=True):
        raise ValueError("no")
    below.end()
    ours, theirs = both_ways(exporter)
    assert len(exporter.get_finished_spans()) == 2
    assert ours == theirs


def test_spans_of_several_processes_stay_apart(exporter: InMemorySpanExporter) -> None:
    for name in ("one", "two", "one"):
        provider = MeshTracerProvider(name)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        provider.get_tracer(telemetry.TRACER_NAME).start_span("work").end()
    request = encoded(exporter.get_finished_spans())
    names = [one.resource.attributes for one in request.resource_spans]
    assert len(names) == 3
    assert all(len(one.scope_spans[0].spans) == 1 for one in request.resource_spans)
