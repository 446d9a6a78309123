"""What goes to a collector is named by the service that made it, and is otherwise as it was."""

from collections import Counter

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from trunkline import telemetry
from trunkline.traces.exporters import group_by_service, received_spans


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def span(number: int, service: str = "") -> Span:
    attributes = [text(telemetry.SERVICE, service)] if service else []
    return Span(
        trace_id=b"t" * 16,
        span_id=number.to_bytes(8, "big"),
        name=f"span {number}",
        attributes=attributes,
        dropped_attributes_count=3,
    )


def process(name: str, *spans: Span) -> ResourceSpans:
    made = ResourceSpans(schema_url="schema")
    made.resource.attributes.extend([text("host.name", "here"), text("service.name", name)])
    made.scope_spans.add(spans=spans).scope.name = "library"
    return made


def test_spans_are_grouped_by_the_service_that_made_them() -> None:
    made = group_by_service(
        [
            process("trunkline", span(1, "bridge"), span(2, "math"), span(3)),
            process("trunkline", span(4, "bridge")),
            process("mcp-math", span(5)),
        ]
    )
    found = {
        next(one.value.string_value for one in each.resource.attributes if "service" in one.key): [
            one.name for one in each.scope_spans[0].spans
        ]
        for each in made.resource_spans
    }
    assert found == {
        "bridge": ["span 1", "span 4"],
        "math": ["span 2"],
        "trunkline": ["span 3"],
        "mcp-math": ["span 5"],
    }
    assert Counter(one.key for one in made.resource_spans[0].resource.attributes) == {
        "host.name": 1,
        "service.name": 1,
    }


def test_a_process_without_a_name_gets_that_of_the_service() -> None:
    nameless = ResourceSpans()
    nameless.scope_spans.add().spans.append(span(1, "math"))
    (made,) = group_by_service([nameless]).resource_spans
    assert list(made.resource.attributes) == [text("service.name", "math")]


def test_received_spans_are_those_asked_for_and_stay_as_they_came() -> None:
    came = process("mcp-math", span(1), span(2))
    (found,) = received_spans([came], {(b"t".hex() * 16, f"{2:016x}")})
    assert found.received == process("mcp-math", span(2))
