"""Our own spans show what the SDK's would, and are sampled as their parents are."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, Status, StatusCode, Tracer, set_span_in_context

from trunkline import telemetry
from trunkline.traces.provider import MeshTracerProvider
from trunkline.traces.tracer import MeshSpan

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[MeshTracerProvider]:
    provider = MeshTracerProvider("test")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def tracer(provider: MeshTracerProvider) -> Tracer:
    return provider.get_tracer(telemetry.TRACER_NAME)


def test_a_root_begins_a_trace_and_a_child_goes_on_with_it(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    with tracer.start_as_current_span("root"), tracer.start_as_current_span("child"):
        pass
    child, root = exporter.get_finished_spans()
    assert child.parent == root.context
    assert root.parent is None
    assert child.context.trace_id == root.context.trace_id
    assert child.context.span_id != root.context.span_id
    assert root.start_time is not None
    assert root.end_time is not None
    assert child.start_time is not None
    assert root.start_time <= child.start_time <= root.end_time


def test_a_span_without_a_parent_in_its_context_is_a_root(tracer: Tracer) -> None:
    span = tracer.start_span("root", context=set_span_in_context(INVALID_SPAN))
    assert isinstance(span, MeshSpan)
    assert span.parent is None
    assert span.context.is_valid


def test_what_the_caller_does_not_sample_is_not_recorded_but_carried_on(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    context = telemetry.extract({"traceparent": f"{PARENT}00"})
    span = tracer.start_span("quiet", context=context)
    span.end()
    assert not span.is_recording()
    assert not exporter.get_finished_spans()
    carried = telemetry.inject(set_span_in_context(span))["traceparent"]
    assert carried[:35] == PARENT[:35]
    assert carried.endswith("-00")


def test_a_remote_parent_is_known_to_be_one(tracer: Tracer) -> None:
    context = telemetry.extract({"traceparent": f"{PARENT}01", "tracestate": "vendor=1"})
    span = tracer.start_span("below", context=context)
    assert isinstance(span, MeshSpan)
    assert span.parent is not None
    assert span.parent.is_remote
    assert not span.context.is_remote
    carrier = telemetry.inject(set_span_in_context(span))
    assert carrier["tracestate"] == "vendor=1"
    assert carrier["traceparent"].startswith(PARENT[:35])


def test_long_texts_are_cut_and_nothing_is_taken_after_the_end(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = tracer.start_span("work", attributes={"first": "x" * 20_000, "kept": 1})
    span.set_attribute("second", "y" * 20_000)
    span.set_attributes({"third": "z" * 20_000})
    span.end()
    span.set_attribute("late", 1)
    span.set_attributes({"late": 1})
    span.add_event("late")
    span.update_name("late")
    span.set_status(StatusCode.ERROR)
    span.end()
    (made,) = exporter.get_finished_spans()
    assert made.name == "work"
    assert made.status.status_code is StatusCode.UNSET
    assert not made.events
    assert made.attributes is not None
    assert set(made.attributes) == {"first", "kept", "second", "third"}
    assert {len(str(made.attributes[key])) for key in ("first", "second", "third")} == {
        telemetry.ATTRIBUTE_LIMIT_CHARS
    }


def test_that_all_is_well_is_the_last_word(tracer: Tracer) -> None:
    span = tracer.start_span("work")
    span.set_status(Status(StatusCode.ERROR, "why"))
    span.set_status(StatusCode.UNSET)
    assert isinstance(span, MeshSpan)
    assert span.status.description == "why"
    span.set_status(StatusCode.OK)
    span.set_status(StatusCode.ERROR)
    assert span.status.is_ok


def test_other_people_get_the_tracers_of_the_sdk(provider: MeshTracerProvider) -> None:
    assert not isinstance(provider.get_tracer("mcp").start_span("theirs"), MeshSpan)


def test_the_switch_of_the_sdk_turns_ours_off_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    provider = MeshTracerProvider("test")
    assert not provider.get_tracer(telemetry.TRACER_NAME).start_span("work").is_recording()
