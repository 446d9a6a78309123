"""Spans nest, propagate their context, name their service, and record no content."""

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from harness.mesh.recorded_spans import forget_provider, spans_in
from trunkline.errors import TaskNotFoundError
from trunkline.observe import telemetry


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        yield memory


def only_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_without_an_sdk_spans_do_nothing_and_there_is_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_provider(monkeypatch)
    with telemetry.span("work", attributes={telemetry.TASK_ID: "t"}, service="math"):
        assert telemetry.current_service() == "math"
        assert telemetry.current_traceparent() == ""
        assert telemetry.current_trace_id() == ""
        assert telemetry.inject() == {}
    assert telemetry.current_service() == ""


def test_a_nested_span_is_a_child_and_inherits_the_service(
    exporter: InMemorySpanExporter,
) -> None:
    with telemetry.span("outer", service="supervisor") as outer:
        with telemetry.span("inner", kind=SpanKind.CLIENT):
            assert telemetry.current_trace_id() == trace.format_trace_id(
                outer.get_span_context().trace_id
            )
        with telemetry.span("other", service="math"):
            pass
    inner, other, root = exporter.get_finished_spans()
    assert inner.parent is not None
    assert inner.parent.span_id == outer.get_span_context().span_id
    assert root.parent is None
    assert [span.attributes for span in (inner, other, root)] == [
        {telemetry.SERVICE: name} for name in ("supervisor", "math", "supervisor")
    ]
    assert inner.kind is SpanKind.CLIENT


def test_a_context_from_the_wire_is_the_parent(exporter: InMemorySpanExporter) -> None:
    with telemetry.span("client") as client:
        carrier = telemetry.inject()
    context = telemetry.extract(carrier)
    with telemetry.span("server", context=context, service="bridge"):
        pass
    server = exporter.get_finished_spans()[1]
    assert server.parent is not None
    assert server.parent.span_id == client.get_span_context().span_id
    assert server.attributes == {telemetry.SERVICE: "bridge"}
    assert carrier == {"traceparent": carrier["traceparent"]}


@pytest.mark.parametrize(
    "traceparent",
    [
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "",
    ],
)
def test_a_context_is_parsed_as_opentelemetry_parses_it(traceparent: str) -> None:
    for carrier in (
        {"traceparent": traceparent},
        {"traceparent": traceparent, "tracestate": "vendor=1"},
    ):
        expected = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier))
        actual = trace.get_current_span(telemetry.extract(carrier))
        assert actual.get_span_context() == expected.get_span_context()
        assert actual.get_span_context().is_remote == expected.get_span_context().is_remote


def test_a_link_names_the_span_of_a_traceparent(exporter: InMemorySpanExporter) -> None:
    with telemetry.span("first") as first:
        parent = telemetry.current_traceparent()
    link = telemetry.parse_link(parent)
    assert link is not None
    assert link.context.span_id == first.get_span_context().span_id
    assert telemetry.parse_link("") is None
    assert telemetry.parse_link("00-00000000000000000000000000000000-0000000000000000-01") is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TaskNotFoundError("secret"), "TASK_NOT_FOUND"),
        (asyncio.CancelledError("secret"), "cancelled"),
        (asyncio.CancelledError(telemetry.TIMEOUT), "timeout"),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_an_error_marks_the_span_by_its_kind_and_propagates(
    exporter: InMemorySpanExporter, error: BaseException, kind: str
) -> None:
    with pytest.raises(type(error)), telemetry.span("work"):
        raise error
    span = only_span(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes == {telemetry.ERROR_TYPE: kind}
    assert "secret" not in span.to_json()


def test_a_closed_generator_is_no_error(exporter: InMemorySpanExporter) -> None:
    def counting() -> Iterator[int]:
        with telemetry.span("work"):
            yield 1

    numbers = counting()
    assert next(numbers) == 1
    numbers.close()  # type: ignore[attr-defined]
    assert only_span(exporter).status.status_code is StatusCode.UNSET
