"""The provider follows the standard variables, with the mesh's defaults."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_span_in_context

from trunkline.observe import telemetry
from trunkline.observe.traces.sdk import make_provider

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"


def finish_span(provider: TracerProvider, *, traceparent: str = "") -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer(telemetry.TRACER_NAME)
    context = telemetry.extract({"traceparent": traceparent, "tracestate": "vendor=1"})
    span = tracer.start_span("work", context=context, attributes={"text": "x" * 20_000})
    span.end()
    provider.shutdown()
    if traceparent:
        carrier = telemetry.inject(set_span_in_context(span))
        assert carrier["traceparent"][:35] == traceparent[:35]
        assert carrier["tracestate"] == "vendor=1"
    return exporter.get_finished_spans()


def test_a_sampled_parent_is_continued() -> None:
    (span,) = finish_span(make_provider("test"), traceparent=f"{PARENT}01")
    assert span.parent is not None
    assert span.parent.is_remote


def test_an_unsampled_context_is_propagated_but_not_recorded() -> None:
    assert not finish_span(make_provider("test"), traceparent=f"{PARENT}00")


def test_the_default_resource_names_the_service_and_our_version() -> None:
    attributes = make_provider("test").resource.attributes
    assert attributes["service.name"] == "test"
    assert attributes["service.version"]
    # Replicas of an agent have the same name, and each process has an instance of its own.
    assert attributes["service.instance.id"]
    assert make_provider("test").resource.attributes == attributes


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,zone=here")],
)
def test_the_environment_names_the_service(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    attributes = make_provider("test").resource.attributes
    assert attributes["service.name"] == "mine"
    assert attributes.get("zone", "here") == "here"


@pytest.mark.parametrize(
    ("sampler", "ratio", "count"),
    [("always_off", "", 0), ("parentbased_traceidratio", "0", 0), ("traceidratio", "1", 1)],
)
def test_the_environment_selects_the_sampler(
    monkeypatch: pytest.MonkeyPatch, sampler: str, ratio: str, count: int
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    assert len(finish_span(make_provider("test"))) == count


@pytest.mark.parametrize(
    ("variable", "limit"),
    [
        ("", telemetry.ATTRIBUTE_LIMIT_CHARS),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", 10),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", 10),
    ],
)
def test_a_long_attribute_is_cut(
    monkeypatch: pytest.MonkeyPatch, variable: str, limit: int
) -> None:
    if variable:
        monkeypatch.setenv(variable, str(limit))
    (span,) = finish_span(make_provider("test"))
    assert span.attributes is not None
    assert len(str(span.attributes["text"])) == limit


def test_the_sdk_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not finish_span(make_provider("test"))
