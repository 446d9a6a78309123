"""Instruments: bounded series, gauges that follow their objects, exemplars, and both formats."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from trunkline.observe.metrics.histograms import HistogramReader
from trunkline.observe.metrics.instruments import (
    INSTRUMENTS,
    RPC_CLIENT_DURATION,
    RPC_SERVER_DURATION,
)
from trunkline.observe.metrics.kinds import Attribute, Counter, Gauge, Histogram, Instrument
from trunkline.observe.metrics.prometheus import PrometheusMetrics
from trunkline.observe.metrics.table import render_table

ROOT: Final = Path(__file__).parents[4]
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
AGENT = Attribute("agent", "the agent", limit=3)
CALL = ("grpc", "test.v1.Things/Do", "OK", "", "host", 1)
STATE = Attribute("state", "the state", frozenset({"on", "off"}))


def read(instrument: Instrument) -> dict[tuple[object, ...], float]:
    """Return an instrument's numbers by the values of its attributes."""
    reader = InMemoryMetricReader()
    instrument.connect(MeterProvider([reader]).get_meter("test"))
    data = reader.get_metrics_data()
    points: list[NumberDataPoint] = []
    if data is not None:
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            points += [p for p in metric.data.data_points if isinstance(p, NumberDataPoint)]
    return {tuple((point.attributes or {}).values()): point.value for point in points}


def test_values_beyond_the_limit_of_an_attribute_count_as_other() -> None:
    counter = Counter("c", "{thing}", "Things.", [AGENT, STATE])
    for number in range(1000):
        counter.add(1, f"agent-{number}", "on")
    counter.add(2, "agent-1", "sideways")
    assert read(counter) == {
        ("agent-0", "on"): 1,
        ("agent-1", "on"): 1,
        ("agent-2", "on"): 1,
        ("other", "on"): 997,
        ("agent-1", "other"): 2,
    }


class Lamp:
    """Something with a state."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read_state(self) -> list[tuple[tuple[str, ...], float]]:
        return [((self.name, "on"), 1)]


def test_a_gauge_no_longer_reads_an_object_that_it_forgot() -> None:
    gauge = Gauge("g", "{thing}", "Things.", [AGENT, STATE])
    lamps = [Lamp("a"), Lamp("a"), Lamp("b")]
    for lamp in lamps:
        gauge.watch(lamp, Lamp.read_state)
    assert read(gauge) == {("a", "on"): 2, ("b", "on"): 1}
    gauge.forget(lamps[0])
    gauge.forget(lamps[2])
    # A lamp that it has forgotten, and a lamp that it never knew.
    gauge.forget(lamps[2])
    gauge.forget(Lamp("a"))
    assert read(gauge) == {("a", "on"): 1}


def test_an_empty_value_leaves_its_attribute_out() -> None:
    counter = Counter("c", "{thing}", "Things.", [AGENT, STATE])
    counter.add(1, "a", "")
    assert read(counter) == {("a",): 1}


def test_a_counter_without_attributes_begins_at_zero() -> None:
    assert read(Counter("c", "{thing}", "Things.")) == {(): 0}


def test_a_series_that_is_known_begins_at_zero() -> None:
    counter = Counter("c", "{thing}", "Things.", [AGENT, STATE])
    counter.add(1, "a", "on")
    for _ in range(2):
        counter.begin("a", "on")
        counter.begin("b", "off")
    assert read(counter) == {("a", "on"): 1, ("b", "off"): 0}


class Room:
    def __init__(self, people: int) -> None:
        self.people = people

    def count(self) -> list[tuple[tuple[str, ...], float]]:
        return [(("on",), self.people)]


def test_a_gauge_adds_up_the_objects_that_live() -> None:
    gauge = Gauge("g", "{person}", "People.", [STATE])
    rooms = [Room(1), Room(20), Room(300)]
    for room in rooms:
        gauge.watch(room, Room.count)
    rooms[0].people = 2
    assert read(gauge) == {("on",): 322}
    del room, rooms[2]
    assert read(gauge) == {("on",): 22}


def test_a_histogram_measures_nothing_before_it_is_connected() -> None:
    histogram = Histogram("h", "s", "Times.", [STATE], buckets=[1, 2])
    histogram.record(1, "on")
    assert histogram.read() == {}


def test_values_of_a_histogram_beyond_the_limit_share_a_series() -> None:
    histogram = Histogram("h", "s", "Times.", [AGENT], buckets=[1, 2])
    histogram.connect(MeterProvider().get_meter("test"))
    for number in range(1000):
        histogram.record(1.5, f"agent-{number}")
    counts = {values: series.counts for values, series in histogram.read().items()}
    first = {(f"agent-{number}",): (0, 1, 0) for number in range(3)}
    assert counts == {**first, ("other",): (0, 997, 0)}


@pytest.mark.parametrize(
    ("word", "count"), [("trace_based", 0), ("always_on", 1), ("always_off", 0)]
)
def test_the_filter_of_exemplars_is_the_standard_one(
    word: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", word)
    histogram = Histogram("h", "s", "Times.", [], buckets=[1, 2])
    histogram.connect(MeterProvider().get_meter("test"))
    # No span is recorded here.
    histogram.record(1.5)
    assert len(histogram.read()[()].exemplars) == (word == "always_on")


def durations(data: MetricsData) -> HistogramDataPoint:
    """Return the distribution of one method's calls."""
    labels = RPC_CLIENT_DURATION.label(CALL)
    (point,) = (
        point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == RPC_CLIENT_DURATION.name
        for point in metric.data.data_points
        # Earlier tests of this process have recorded other calls.
        if point.attributes == labels
    )
    assert isinstance(point, HistogramDataPoint)
    return point


@pytest.mark.parametrize("is_delta", [False, True])
def test_exports_of_histograms_are_cumulative_or_differences(is_delta: bool) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("trunkline")
    counter = meter.create_counter("c")
    RPC_CLIENT_DURATION.connect(meter)
    histograms = HistogramReader(is_delta=is_delta)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")

    def export() -> HistogramDataPoint:
        counter.add(1)
        data = reader.get_metrics_data()
        assert data is not None
        point = durations(histograms.add_to(data))
        assert sum(point.bucket_counts) == point.count
        return point

    with tracer.start_as_current_span("work") as span:
        RPC_CLIENT_DURATION.record(0.002, *CALL)
    before = export()
    RPC_CLIENT_DURATION.record(0.002, *CALL)
    RPC_CLIENT_DURATION.record(1000, *CALL)
    after = export()
    assert after.count - (0 if is_delta else before.count) == 2
    assert after.sum - (0 if is_delta else before.sum) == pytest.approx(1000.002)
    # An exemplar is in one export.
    assert [one.span_id for one in before.exemplars] == [span.get_span_context().span_id]
    assert not after.exemplars


@pytest.fixture
def metrics() -> PrometheusMetrics:
    return PrometheusMetrics("test")


@pytest.fixture
def recorded() -> Iterator[trace.SpanContext]:
    """The span in which a call was measured."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("work") as span:
        RPC_SERVER_DURATION.record(0.3, "grpc", "test.v1.Things/Do", "OK", "")
        yield span.get_span_context()


async def test_every_scraper_gets_the_exemplar_of_a_bucket(
    metrics: PrometheusMetrics, recorded: trace.SpanContext
) -> None:
    for _ in range(2):
        text = await metrics.scrape(OPENMETRICS)
        assert text.content_type.startswith("application/openmetrics-text; version=1.0.0")
        families = {
            family.name: family
            for family in text_string_to_metric_families(  # type: ignore[no-untyped-call]
                text.body.decode()
            )
        }
        samples = families["rpc_server_call_duration_seconds"].samples
        exemplars = [
            sample.exemplar
            for sample in samples
            if sample.labels["rpc_method"] == "test.v1.Things/Do" and sample.exemplar
        ]
        assert [(exemplar.labels, exemplar.value) for exemplar in exemplars] == [
            (
                {
                    "trace_id": f"{recorded.trace_id:032x}",
                    "span_id": f"{recorded.span_id:016x}",
                },
                0.3,
            )
        ]


async def test_old_scrapers_get_the_text_format(
    metrics: PrometheusMetrics, recorded: trace.SpanContext
) -> None:
    text = await metrics.scrape("text/plain")
    assert text.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# TYPE rpc_server_call_duration_seconds histogram\n" in text.body
    assert b"trunkline_journal_events_total" in text.body
    assert b"process_resident_memory_bytes" in text.body
    assert f"{recorded.trace_id:032x}".encode() not in text.body


def test_instruments_have_names_units_and_descriptions() -> None:
    names = [instrument.name for instrument in INSTRUMENTS]
    assert len(names) == len(set(names))
    for instrument in INSTRUMENTS:
        assert instrument.unit in ("s", "USD") or instrument.unit.startswith("{")
        assert instrument.description.endswith(".")
        assert all(attribute.description for attribute in instrument.attributes)


def test_the_documentation_has_all_instruments() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    begin, end = (f"<!-- instruments: {word} -->" for word in ("begin", "end"))
    assert page.partition(begin)[2].partition(end)[0].strip() == render_table().strip()
