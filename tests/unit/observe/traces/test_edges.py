"""Edges: which spans are calls, and their rates, errors and durations over a rolling window."""

from collections.abc import Mapping

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from trunkline.observe import telemetry
from trunkline.observe.traces.edges import EdgeWindow
from trunkline.observe.traces.spans import SpanRecord, read_records
from trunkline.v1 import trace_service_pb2

CLIENT, SERVER = trace_pb2.Span.SPAN_KIND_CLIENT, trace_pb2.Span.SPAN_KIND_SERVER
INTERNAL, CONSUMER = trace_pb2.Span.SPAN_KIND_INTERNAL, trace_pb2.Span.SPAN_KIND_CONSUMER
PRODUCER = trace_pb2.Span.SPAN_KIND_PRODUCER
# A room, and one of its members with the same name.
TO_ROOM = {telemetry.MESSAGE_SENDER: "ann", telemetry.MESSAGE_ROOM: "bob"}


def span(
    service: str,
    kind: trace_pb2.Span.SpanKind.ValueType,
    attributes: Mapping[str, str | int],
    *,
    took_ms: float = 10.0,
    is_error: bool = False,
) -> SpanRecord:
    resource = trace_pb2.ResourceSpans()
    new = resource.scope_spans.add().spans.add(
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        kind=kind,
        start_time_unix_nano=10**18,
        end_time_unix_nano=10**18 + int(took_ms * 1e6),
    )
    if is_error:
        new.status.code = trace_pb2.Status.STATUS_CODE_ERROR
    for key, value in {telemetry.SERVICE: service, **attributes}.items():
        written = new.attributes.add(key=key).value
        if isinstance(value, int):
            written.int_value = value
        else:
            written.string_value = value
    (record,) = read_records([resource])
    return record


def invoke(target: str = "math", **options: float) -> SpanRecord:
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.INVOKE_AGENT,
        telemetry.GEN_AI_AGENT_NAME: target,
    }
    is_error = bool(options.pop("is_error", 0))
    return span("supervisor", CLIENT, attributes, is_error=is_error, **options)


@pytest.mark.parametrize(
    ("service", "kind", "attributes", "edge"),
    [
        (
            "bridge",
            SERVER,
            {telemetry.A2A_METHOD_NAME: "SendMessage", telemetry.GEN_AI_AGENT_NAME: "math"},
            ("client", "math", trace_service_pb2.EDGE_KIND_CALL),
        ),
        (
            "supervisor",
            CLIENT,
            {telemetry.GEN_AI_OPERATION_NAME: "invoke_agent", telemetry.GEN_AI_AGENT_NAME: "math"},
            ("supervisor", "math", trace_service_pb2.EDGE_KIND_CALL),
        ),
        (
            "math",
            INTERNAL,
            {telemetry.GEN_AI_OPERATION_NAME: "execute_tool", telemetry.TOOL_SERVER: "sums"},
            ("math", "sums", trace_service_pb2.EDGE_KIND_TOOL),
        ),
        (
            "math",
            CLIENT,
            {telemetry.GEN_AI_OPERATION_NAME: "chat", telemetry.GEN_AI_REQUEST_MODEL: "rules"},
            ("math", "rules", trace_service_pb2.EDGE_KIND_MODEL),
        ),
        (
            "trunkline",
            CONSUMER,
            {telemetry.MESSAGE_SENDER: "ann", telemetry.MESSAGING_DESTINATION_NAME: "bob"},
            ("ann", "bob", trace_service_pb2.EDGE_KIND_MESSAGE),
        ),
        (
            "trunkline",
            PRODUCER,
            {**TO_ROOM, telemetry.MESSAGING_DESTINATION_NAME: "room:bob"},
            ("ann", "room:bob", trace_service_pb2.EDGE_KIND_MESSAGE),
        ),
        (
            "trunkline",
            PRODUCER,
            {**TO_ROOM, telemetry.MESSAGING_DESTINATION_NAME: "broadcast"},
            ("ann", "room:bob", trace_service_pb2.EDGE_KIND_MESSAGE),
        ),
        (
            "trunkline",
            CONSUMER,
            {**TO_ROOM, telemetry.MESSAGING_DESTINATION_NAME: "bob"},
            ("room:bob", "bob", trace_service_pb2.EDGE_KIND_MESSAGE),
        ),
        # A message to an agent is counted by its delivery, and one to an invented room not at all.
        (
            "trunkline",
            PRODUCER,
            {telemetry.MESSAGE_SENDER: "ann", telemetry.MESSAGING_DESTINATION_NAME: "bob"},
            None,
        ),
        ("trunkline", PRODUCER, {telemetry.MESSAGING_DESTINATION_NAME: "room:invented"}, None),
        # The turn of an agent is no call, nor is a read, nor a tool call inside the MCP server.
        (
            "math",
            INTERNAL,
            {telemetry.GEN_AI_OPERATION_NAME: "invoke_agent", telemetry.GEN_AI_AGENT_NAME: "math"},
            None,
        ),
        (
            "bridge",
            SERVER,
            {telemetry.A2A_METHOD_NAME: "GetTask", telemetry.GEN_AI_AGENT_NAME: "math"},
            None,
        ),
        ("mcp-sums", SERVER, {telemetry.GEN_AI_OPERATION_NAME: "execute_tool"}, None),
        # Nor is a request to an agent that does not exist.
        *(
            (
                "bridge",
                SERVER,
                {
                    telemetry.A2A_METHOD_NAME: "SendMessage",
                    telemetry.GEN_AI_AGENT_NAME: "invented",
                    **refusal,
                },
                None,
            )
            for refusal in (
                {telemetry.ERROR_TYPE: "AGENT_NOT_FOUND"},
                {telemetry.HTTP_RESPONSE_STATUS_CODE: 404},
                {telemetry.RPC_STATUS_CODE: "NOT_FOUND"},
            )
        ),
    ],
)
def test_one_span_of_each_call_is_an_edge(
    service: str,
    kind: trace_pb2.Span.SpanKind.ValueType,
    attributes: Mapping[str, str | int],
    edge: tuple[str, str, int] | None,
) -> None:
    window = EdgeWindow()
    window.add([span(service, kind, attributes)], now_s=100)
    found = [(each.source, each.target, each.kind) for each in window.list_edges(now_s=100)]
    assert found == ([edge] if edge else [])


def test_an_edge_has_rate_errors_and_percentiles_of_the_window() -> None:
    window = EdgeWindow(60)
    for number in range(1, 101):
        call = invoke(took_ms=float(number), is_error=number > 90)
        window.add([call], now_s=100 + number / 10)
    (edge,) = window.list_edges(now_s=112)
    assert (edge.count, edge.error_count) == (100, 10)
    assert edge.rate_per_s == pytest.approx(100 / 60)
    assert edge.p50_ms == pytest.approx(50, rel=0.1)
    assert edge.p95_ms == pytest.approx(95, rel=0.1)


@pytest.mark.parametrize(("state", "errors"), [("failed", 1), ("completed", 0), ("canceled", 0)])
def test_a_request_whose_task_has_failed_is_a_call_with_an_error(state: str, errors: int) -> None:
    window = EdgeWindow()
    attributes = {
        telemetry.A2A_METHOD_NAME: "SendMessage",
        telemetry.GEN_AI_AGENT_NAME: "math",
        telemetry.TASK_STATE: state,
    }
    window.add([span("bridge", SERVER, attributes)], now_s=100)
    assert [edge.error_count for edge in window.list_edges(now_s=100)] == [errors]


def test_calls_leave_the_window_and_then_the_edge_does() -> None:
    window = EdgeWindow(60)
    window.add([invoke(), invoke()], now_s=100)
    window.add([invoke()], now_s=130)
    assert [edge.count for edge in window.list_edges(now_s=159)] == [3]
    assert [edge.count for edge in window.list_edges(now_s=160)] == [1]
    assert window.list_edges(now_s=190) == []


def test_the_number_of_edges_is_limited_and_old_ones_make_room() -> None:
    window = EdgeWindow(60, max_edges=2)
    window.add([invoke("a"), invoke("b"), invoke("c"), invoke("a")], now_s=100)
    assert [(e.target, e.count) for e in window.list_edges(now_s=100)] == [("a", 2), ("b", 1)]
    window.add([invoke("c")], now_s=161)
    assert [edge.target for edge in window.list_edges(now_s=161)] == ["c"]
