"""Exports the distributions of our histograms, which the SDK does not measure."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
)

from trunkline.observe import telemetry
from trunkline.observe.metrics import kinds
from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.metrics.kinds import Distribution, Value

_NOTHING = Distribution((), 0.0, 0)


class HistogramReader:
    """Adds the distributions of histograms to what the SDK has collected, for one reader."""

    def __init__(self, *, is_delta: bool = False) -> None:
        """With `is_delta`, each export has what was recorded since the one before."""
        self._is_delta = is_delta
        self._previous: dict[str, Mapping[tuple[Value, ...], Distribution]] = {}
        self._previous_ns = 0

    def add_to(self, data: MetricsData) -> MetricsData:
        """Return the data with the distributions. Each exemplar is in one export."""
        now_ns = time.time_ns()
        added = [
            self._read(instrument, now_ns)
            for instrument in INSTRUMENTS
            if isinstance(instrument, kinds.Histogram)
        ]
        self._previous_ns = now_ns
        added = [metric for metric in added if metric.data.data_points]
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

    def _read(self, instrument: kinds.Histogram, now_ns: int) -> Metric:
        current = instrument.read()
        previous = self._previous.get(instrument.name, {})
        if self._is_delta:
            self._previous[instrument.name] = current
        points = [
            self._make_point(
                instrument, values, distribution, previous.get(values, _NOTHING), now_ns
            )
            for values, distribution in current.items()
        ]
        temporality = (
            AggregationTemporality.DELTA if self._is_delta else AggregationTemporality.CUMULATIVE
        )
        data = Histogram(points, temporality)
        return Metric(instrument.name, instrument.description, instrument.unit, data)

    def _make_point(
        self,
        instrument: kinds.Histogram,
        values: tuple[Value, ...],
        current: Distribution,
        before: Distribution,
        now_ns: int,
    ) -> HistogramDataPoint:
        buckets, counts, start_ns = instrument.buckets, current.counts, current.start_time_ns
        if before.counts:
            counts = tuple(count - old for count, old in zip(counts, before.counts, strict=True))
            start_ns = self._previous_ns
        # The bounds of the values: the extremes themselves are not recorded.
        filled = [index for index, count in enumerate(counts) if count] or [0]
        bounds = (0.0, *buckets, buckets[-1])
        return HistogramDataPoint(
            attributes=instrument.label(values),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=current.total - before.total,
            bucket_counts=counts,
            explicit_bounds=buckets,
            min=bounds[filled[0]],
            max=bounds[filled[-1] + 1],
            exemplars=list(self._new_exemplars(current)),
        )

    def _new_exemplars(self, current: Distribution) -> Iterable[Exemplar]:
        for value, time_ns, trace_id, span_id in current.exemplars:
            if time_ns > self._previous_ns:
                yield Exemplar({}, value, time_ns, span_id, trace_id)


def is_delta(temporality: Mapping[Any, Any] | None) -> bool:
    """Return whether an exporter's preferences ask for differences of histograms."""
    return (temporality or {}).get(HistogramInstrument) is AggregationTemporality.DELTA
