"""Spans for a collector carry their service's name and lose nothing on the way."""

from collections.abc import Sequence

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from trunkline.observe import telemetry
from trunkline.observe.traces.collector import ServiceExporter, collector_exporters, decode_spans

IDS = {(b"t".hex() * 16, f"{2:016x}")}


class Recorder(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


def span(number: int, service: str = "", *, process: Resource) -> ReadableSpan:
    return ReadableSpan(
        f"span {number}",
        context=SpanContext(1, number, is_remote=False, trace_flags=TraceFlags(1)),
        resource=process,
        attributes={telemetry.SERVICE: service} if service else {},
        start_time=1,
        end_time=2,
    )


def test_spans_carry_the_name_of_the_service_that_made_them() -> None:
    mesh = Resource({"host.name": "here", "service.name": "trunkline"}, "schema")
    server = Resource({"host.name": "here", "service.name": "mcp-math"})
    recorder = Recorder()
    exporter = ServiceExporter(recorder)
    exporter.export(
        [
            span(1, "bridge", process=mesh),
            span(2, "math", process=mesh),
            span(3, process=mesh),
            span(4, "bridge", process=mesh),
            span(5, process=server),
        ]
    )
    assert [
        exported_span.resource.attributes["service.name"] for exported_span in recorder.spans
    ] == [
        "bridge",
        "math",
        "trunkline",
        "bridge",
        "mcp-math",
    ]
    first = recorder.spans[0]
    assert dict(first.resource.attributes) == {"host.name": "here", "service.name": "bridge"}
    assert first.resource.schema_url == "schema"
    assert first.resource is recorder.spans[3].resource
    assert (first.name, first.start_time, first.end_time) == ("span 1", 1, 2)


def test_a_process_without_a_name_gets_the_service_name() -> None:
    recorder = Recorder()
    ServiceExporter(recorder).export([span(1, "math", process=Resource({}))])
    assert dict(recorder.spans[0].resource.attributes) == {"service.name": "math"}


def attribute(key: str, **value: object) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(**value))  # type: ignore[arg-type]


def test_a_decoded_span_encodes_to_what_was_received() -> None:
    attributes = [
        attribute("text", string_value="é"),
        attribute("count", int_value=7),
        attribute("ratio", double_value=0.5),
        attribute("flag", bool_value=True),
        attribute("list", array_value=ArrayValue(values=[AnyValue(int_value=1)])),
        attribute("map", kvlist_value=KeyValueList(values=[attribute("k", string_value="v")])),
    ]
    received = ResourceSpans(schema_url="schema")
    received.resource.attributes.append(attribute("service.name", string_value="mcp-math"))
    scope = received.scope_spans.add(schema_url="scope-schema")
    scope.scope.name, scope.scope.version = "library", "1"
    original = Span(
        trace_id=b"t" * 16,
        span_id=(2).to_bytes(8, "big"),
        parent_span_id=(1).to_bytes(8, "big"),
        trace_state="vendor=1",
        name="tools/call",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=3,
        end_time_unix_nano=4,
        attributes=attributes,
        # The encoder sets the flags of a known parent in another process.
        flags=0x300,
        status=Status(code=Status.STATUS_CODE_ERROR, message="why"),
    )
    original.events.add(name="retry", time_unix_nano=5, attributes=attributes[:1])
    original.links.add(trace_id=b"l" * 16, span_id=b"l" * 8, attributes=attributes[:1], flags=0x300)
    other = Span(trace_id=b"t" * 16, span_id=(3).to_bytes(8, "big"))
    scope.spans.extend([original, other])
    (encoded,) = encode_spans(list(decode_spans([received], IDS))).resource_spans
    del scope.spans[1]
    assert encoded == received


@pytest.mark.parametrize(
    ("variables", "targets"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, ["http://127.0.0.1:1"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, ["http://127.0.0.1:1"]),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
            [],
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp"]),
        ({"OTEL_TRACES_EXPORTER": "otlp_proto_http"}, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "unheard-of"}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, []),
    ],
)
def test_the_standard_variables_select_the_exporters(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], targets: list[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    exporters = list(collector_exporters())
    assert [target for target, _ in exporters] == targets
    for _, exporter in exporters:
        exporter.shutdown()
