"""Exports to a target that is down for a while."""

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from trunkline.observe.traces.exporters import RetryingExporter
from trunkline.observe.traces.processors import ProcessorSet, TargetProcessor

TIMEOUT_S = 300.0


class Target(SpanExporter):
    """Refuses the first exports by a result or an exception; blocks while it is held."""

    def __init__(self, *, refusals: int = 0) -> None:
        self.refusals = refusals
        self.attempts = 0
        self.exported: list[str] = []
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.is_called = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_called.set()
        assert self.may_continue.wait(TIMEOUT_S)
        self.attempts += 1
        if self.attempts <= self.refusals:
            if self.attempts % 2:
                raise ConnectionError("secret")
            return SpanExportResult.FAILURE
        self.exported += [span.name for span in spans]
        return SpanExportResult.SUCCESS


def span(number: int) -> ReadableSpan:
    context = SpanContext(1, number + 1, is_remote=False, trace_flags=TraceFlags(1))
    return ReadableSpan(f"span {number}", context=context)


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return this test's records: threads of an earlier test may still be retrying."""
    return [record for record in caplog.records if vars(record).get("target") == "tested"]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in records(caplog)]


def test_a_batch_is_retried_until_it_is_accepted_and_an_outage_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    target = Target(refusals=3)
    exporter = RetryingExporter(target, target="tested", retry_s=TIMEOUT_S)
    assert exporter.export([span(0), span(1)]) is SpanExportResult.SUCCESS
    assert target.exported == ["span 0", "span 1"]
    assert messages(caplog) == ["traces.export_failed", "traces.export_recovered"]
    assert vars(records(caplog)[-1])["lost"] == 0
    assert "secret" not in caplog.text


def test_a_batch_refused_beyond_the_limit_is_dropped_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    target = Target(refusals=2)
    exporter = RetryingExporter(target, target="tested", retry_s=0)
    for number in range(3):
        exporter.export([span(number), span(number)])
    assert target.exported == ["span 2", "span 2"]
    assert messages(caplog) == ["traces.export_failed", "traces.export_recovered"]
    assert vars(records(caplog)[-1])["lost"] == 4


def test_an_urgent_export_makes_a_single_attempt() -> None:
    target = Target(refusals=1000)
    exporter = RetryingExporter(target, target="tested", retry_s=TIMEOUT_S)
    exporter.set_urgent(is_urgent=True)
    assert exporter.export([span(0)]) is SpanExportResult.FAILURE
    assert target.attempts == 1


def test_a_full_queue_drops_the_oldest_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    target = Target()
    target.may_continue.clear()
    processor = TargetProcessor(target, target="tested")
    processor.on_end(span(0))
    assert target.is_called.wait(TIMEOUT_S)
    for number in range(1, 701):
        processor.on_end(span(number))
    target.may_continue.set()
    processor.shutdown()
    assert target.exported == ["span 0", *(f"span {number}" for number in range(189, 701))]


def test_processors_are_added_and_removed() -> None:
    first, second = Target(), Target()
    processors = [TargetProcessor(exporter, target="tested") for exporter in (first, second)]
    processor_set = ProcessorSet()
    processor_set.add(processors)
    processor_set.on_end(span(0))
    assert processor_set.force_flush()
    processor_set.remove(processors[:1])
    processor_set.on_end(span(1))
    processor_set.shutdown()
    processors[0].shutdown()
    assert (first.exported, second.exported) == (["span 0"], ["span 0", "span 1"])


def test_spans_are_exported_without_a_flush_also_after_a_time_without_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    target = Target()
    processor = TargetProcessor(target, target="tested")
    for number in range(3):
        target.is_called.clear()
        processor.on_end(span(number))
        assert target.is_called.wait(TIMEOUT_S)
    processor.shutdown()
    assert target.exported == ["span 0", "span 1", "span 2"]


def test_the_rest_of_a_burst_of_spans_is_exported_after_its_whole_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    has_all = threading.Event()

    class Six(Target):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            if len(self.exported) == 6:
                has_all.set()
            return result

    target = Six()
    processor = TargetProcessor(target, target="tested")
    for number in range(6):
        processor.on_end(span(number))
    assert has_all.wait(TIMEOUT_S)
    processor.shutdown()
    assert target.exported == [f"span {number}" for number in range(6)]


class FailingProcessor(TargetProcessor):
    """Its flushes fail."""

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        return False


def test_a_failed_flush_of_one_processor_does_not_skip_the_next() -> None:
    target = Target()
    processor_set = ProcessorSet()
    processors = (FailingProcessor(Target(), target="tested"), TargetProcessor(target, target="ok"))
    processor_set.add(processors)
    processor_set.on_end(span(0))
    try:
        assert not processor_set.force_flush()
        assert target.exported == ["span 0"]
    finally:
        processor_set.shutdown()


def test_a_span_that_is_open_at_an_export_is_exported_before_those_below_it() -> None:
    mesh, collector = Target(), Target()
    processors = ProcessorSet()
    processors.add(
        [
            TargetProcessor(mesh, target="tested"),
            TargetProcessor(collector, target="collector", is_collector=True),
        ]
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processors)
    tracer = provider.get_tracer("tested")
    with tracer.start_as_current_span("request"):
        with tracer.start_as_current_span("call"):
            pass
        processors.force_flush()
        assert mesh.exported == ["request", "call"]
    processors.shutdown()
    assert mesh.exported == ["request", "call", "request"]
    assert collector.exported == ["call", "request"]
