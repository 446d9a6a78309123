"""Any OTLP span converts to a trunkline.v1 span of bounded size."""

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from trunkline.core.json_values import read_member, struct_json
from trunkline.observe import telemetry
from trunkline.observe.traces.spans import (
    pack_records,
    read_records,
    to_span,
    unpack_records,
)
from trunkline.v1 import trace_service_pb2


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def wrap_in_resource(span: Span, *, process: str = "") -> ResourceSpans:
    resource = ResourceSpans()
    if process:
        resource.resource.attributes.append(text(telemetry.SERVICE_NAME, process))
    resource.scope_spans.add().spans.append(span)
    return resource


def convert(span: Span, *, process: str = "") -> list[trace_service_pb2.Span]:
    records = read_records([wrap_in_resource(span, process=process)])
    return [to_span(record) for record in records]


def make_span(**fields: object) -> Span:
    return Span(trace_id=b"t" * 16, span_id=b"s" * 8, **fields)  # type: ignore[arg-type]


def test_all_fields_of_a_span_are_converted() -> None:
    span = make_span(
        parent_span_id=b"p" * 8,
        name="execute_tool calculate",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=1_500_000_001,
        end_time_unix_nano=2_000_000_002,
        status=Status(code=Status.STATUS_CODE_ERROR, message="timeout"),
        events=[Span.Event(name="retry", time_unix_nano=5, attributes=[text("why", "busy")])],
        links=[Span.Link(trace_id=b"l" * 16, span_id=b"m" * 8)],
    )
    (converted,) = convert(span, process="trunkline-mcp-math")
    assert converted.trace_id == b"t".hex() * 16
    assert converted.span_id == b"s".hex() * 8
    assert converted.parent_span_id == b"p".hex() * 8
    assert converted.name == "execute_tool calculate"
    assert converted.kind == trace_service_pb2.SPAN_KIND_CLIENT
    assert converted.service == "trunkline-mcp-math"
    assert converted.start_time.ToNanoseconds() == 1_500_000_001
    assert converted.end_time.ToNanoseconds() == 2_000_000_002
    assert converted.is_error
    assert converted.status_message == "timeout"
    assert converted.events[0].name == "retry"
    assert read_member(converted.events[0].attributes, "why") == "busy"
    assert converted.links[0].trace_id == b"l".hex() * 16


def test_packed_records_round_trip() -> None:
    spans = [make_span(name=f"span {number}", attributes=[text("a", "b")]) for number in range(3)]
    records = [
        record
        for number, span in enumerate(spans)
        for record in read_records([wrap_in_resource(span, process=f"process {number}")])
    ]
    assert list(unpack_records(pack_records(records))) == records


def test_the_service_is_that_of_the_span_or_else_of_the_process() -> None:
    span = make_span(attributes=[text(telemetry.SERVICE, "supervisor")])
    assert convert(span, process="trunkline")[0].service == "supervisor"
    assert convert(make_span())[0].service == "unknown"


def test_values_of_every_kind_are_converted() -> None:
    nested = KeyValueList(values=[text("inner", "x")])
    values = {
        "flag": AnyValue(bool_value=True),
        "count": AnyValue(int_value=7),
        "ratio": AnyValue(double_value=0.5),
        "raw": AnyValue(bytes_value=b"\x00\xff"),
        "list": AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a")])),
        "map": AnyValue(kvlist_value=nested),
        "none": AnyValue(),
    }
    span = make_span(attributes=[KeyValue(key=key, value=value) for key, value in values.items()])
    attributes = struct_json(convert(span)[0].attributes)
    assert attributes["flag"] is True
    assert attributes["count"] == 7
    assert attributes["ratio"] == 0.5
    assert attributes["raw"] == "AP8="
    assert attributes["list"] == ["a"]
    assert attributes["map"] == {"inner": "x"}
    assert attributes["none"] is None


def test_a_span_without_valid_ids_is_skipped() -> None:
    assert convert(Span(trace_id=b"", span_id=b"s" * 8)) == []
    assert convert(Span(trace_id=b"t" * 16, span_id=b"short")) == []


def test_a_huge_span_is_truncated() -> None:
    deep = AnyValue(string_value="core")
    for _ in range(20):
        deep = AnyValue(array_value=ArrayValue(values=[deep]))
    span = make_span(
        name="n" * 100_000,
        end_time_unix_nano=2**64 - 1,
        status=Status(message="m" * 100_000),
        attributes=[
            text("long", "x" * 1_000_000),
            KeyValue(key="deep", value=deep),
            *(text(f"key {number}", "v") for number in range(10_000)),
        ],
        events=[Span.Event(name="e")] * 1000,
        links=[Span.Link()] * 1000,
    )
    (converted,) = convert(span)
    (record,) = read_records([wrap_in_resource(span)])
    content = pack_records([record])
    assert len(content) < 32 * 1024
    assert [to_span(unpacked_record) for unpacked_record in unpack_records(content)] == [converted]
    assert len(str(read_member(converted.attributes, "long"))) == telemetry.ATTRIBUTE_LIMIT_CHARS
    assert converted.ByteSize() < 32 * 1024
    assert converted.end_time.ToDatetime().year == 2116


def test_an_unknown_kind_is_preserved() -> None:
    span = Span.FromString(make_span().SerializeToString() + b"\x30\x63")
    assert convert(span)[0].kind == 99
