"""Spans on their way to a target that has bad times."""

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from trunkline.traces.delivery import Delivery, DeliveryProcessor

PATIENCE_S = 30.0


class Target(SpanExporter):
    """Refuses so many tries, by a result or an exception; takes nothing while it is held."""

    def __init__(self, *, refusals: int = 0) -> None:
        self.refusals = refusals
        self.tries = 0
        self.taken: list[str] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.is_tried = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_tried.set()
        assert self.may_go.wait(PATIENCE_S)
        self.tries += 1
        if self.tries <= self.refusals:
            if self.tries % 2:
                raise ConnectionError("secret")
            return SpanExportResult.FAILURE
        self.taken += [span.name for span in spans]
        return SpanExportResult.SUCCESS


def span(number: int) -> ReadableSpan:
    context = SpanContext(1, number + 1, is_remote=False, trace_flags=TraceFlags(1))
    return ReadableSpan(f"span {number}", context=context)


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Of this test: an earlier one's threads may still be trying."""
    return [record for record in caplog.records if vars(record).get("target") == "tested"]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in records(caplog)]


def test_a_batch_is_tried_until_it_is_taken_and_trouble_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    target = Target(refusals=3)
    delivery = Delivery(target, target="tested", hold_s=PATIENCE_S)
    assert delivery.export([span(0), span(1)]) is SpanExportResult.SUCCESS
    assert target.taken == ["span 0", "span 1"]
    assert said(caplog) == ["traces.export_failed", "traces.export_recovered"]
    assert vars(records(caplog)[-1])["lost"] == 0
    assert "secret" not in caplog.text


def test_a_batch_that_is_refused_too_long_is_lost_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    target = Target(refusals=2)
    delivery = Delivery(target, target="tested", hold_s=0)
    for number in range(3):
        delivery.export([span(number), span(number)])
    assert target.taken == ["span 2", "span 2"]
    assert said(caplog) == ["traces.export_failed", "traces.export_recovered"]
    assert vars(records(caplog)[-1])["lost"] == 4


def test_whoever_is_in_a_hurry_waits_for_no_second_try() -> None:
    target = Target(refusals=1000)
    delivery = Delivery(target, target="tested", hold_s=PATIENCE_S)
    delivery.hurry(is_urgent=True)
    assert delivery.export([span(0)]) is SpanExportResult.FAILURE
    assert target.tries == 1


def test_a_full_queue_loses_the_oldest_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.traces.delivery.QUEUE_LIMIT", 512)
    caplog.set_level(logging.INFO, logger="trunkline.traces")
    target = Target()
    target.may_go.clear()
    processor = DeliveryProcessor(Delivery(target, target="tested", queue_limit=512))
    processor.on_end(span(0))
    assert target.is_tried.wait(PATIENCE_S)
    for number in range(1, 701):
        processor.on_end(span(number))
    target.may_go.set()
    processor.close()
    assert target.taken == ["span 0", *(f"span {number}" for number in range(189, 701))]
    assert said(caplog) == ["traces.queue_full", "traces.export_recovered"]
    assert vars(records(caplog)[-1])["lost"] == 188
