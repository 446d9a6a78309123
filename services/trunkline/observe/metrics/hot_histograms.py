"""Exports the distributions of hot histograms, which the SDK does not measure."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
)

from trunkline.observe import telemetry
from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.metrics.kinds import Distribution, HotHistogram


class HotHistogramReader:
    """Adds the distributions of hot histograms to what the SDK has collected, for one reader."""

    def __init__(self, *, is_delta: bool = False) -> None:
        """With `is_delta`, each export has what was recorded since the one before."""
        self._is_delta = is_delta
        self._previous: dict[str, tuple[int, Distribution]] = {}

    def add_to(self, data: MetricsData) -> MetricsData:
        """Return the data with the distributions."""
        added = [
            self._read(instrument)
            for instrument in INSTRUMENTS
            if isinstance(instrument, HotHistogram)
        ]
        resources = []
        for resource in data.resource_metrics:
            scopes = [
                replace(scope, metrics=[*scope.metrics, *added])
                if scope.scope.name == telemetry.TRACER_NAME
                else scope
                for scope in resource.scope_metrics
            ]
            resources.append(replace(resource, scope_metrics=scopes))
        return replace(data, resource_metrics=resources)

    def _read(self, instrument: HotHistogram) -> Metric:
        now_ns = time.time_ns()
        current = instrument.read()
        start_ns, counts, total = instrument.start_time_ns, current.counts, current.total
        if self._is_delta:
            if instrument.name in self._previous:
                start_ns, before = self._previous[instrument.name]
                counts = tuple(
                    count - old for count, old in zip(counts, before.counts, strict=True)
                )
                total -= before.total
            self._previous[instrument.name] = now_ns, current
        data = _make_histogram(
            instrument.buckets,
            Distribution(counts, total),
            times_ns=(start_ns, now_ns),
            is_delta=self._is_delta,
        )
        return Metric(instrument.name, instrument.description, instrument.unit, data)


def _make_histogram(
    buckets: tuple[float, ...],
    distribution: Distribution,
    *,
    times_ns: tuple[int, int],
    is_delta: bool,
) -> Histogram:
    counts = distribution.counts
    # The bounds of the values: the extremes themselves are not recorded.
    filled = [index for index, count in enumerate(counts) if count] or [0]
    bounds = (0.0, *buckets, buckets[-1])
    point = HistogramDataPoint(
        attributes={},
        start_time_unix_nano=times_ns[0],
        time_unix_nano=times_ns[1],
        count=sum(counts),
        sum=distribution.total,
        bucket_counts=counts,
        explicit_bounds=buckets,
        min=bounds[filled[0]],
        max=bounds[filled[-1] + 1],
    )
    temporality = AggregationTemporality.DELTA if is_delta else AggregationTemporality.CUMULATIVE
    return Histogram([point], temporality)


def is_delta(temporality: Mapping[Any, Any] | None) -> bool:
    """Return whether an exporter's preferences ask for differences of histograms."""
    return (temporality or {}).get(HistogramInstrument) is AggregationTemporality.DELTA
