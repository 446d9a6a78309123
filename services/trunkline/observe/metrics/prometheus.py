"""Metrics as a text for Prometheus: its own format, or OpenMetrics, which has exemplars.

OpenTelemetry's exporter for Prometheus would do, but drops exemplars. The names follow
OpenTelemetry's rules for Prometheus: `_` for `.`, and the unit at the end.
"""

import asyncio
import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from trunkline.observe.metrics.histograms import HistogramReader
from trunkline.observe.metrics.sdk import get_provider
from trunkline.observe.otel_environment import is_sdk_disabled

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric, MetricsData

_UNITS: Final = {"s": "seconds", "By": "bytes", "USD": "usd"}
_INVALID: Final = re.compile(r"[^a-zA-Z0-9_]")


class MetricsText(NamedTuple):
    """A response to a scrape."""

    body: bytes
    content_type: str


class PrometheusMetrics(Collector):
    """The metrics of this process, for Prometheus."""

    def __init__(self, service_name: str) -> None:
        """Measure from now on. `service_name` names the process in `target_info`."""
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        # It collects when it is asked.
        self._reader = InMemoryMetricReader()
        if not is_sdk_disabled():
            get_provider(service_name).add_metric_reader(self._reader)
        self._histograms = HistogramReader()
        self._translator = _Translator()
        # Scrapes of several scrapers at once take turns.
        self._lock = threading.Lock()
        self._process = ProcessCollector(registry=None)

    async def scrape(self, accept: str) -> MetricsText:
        """Return the metrics in the best format that an Accept header allows.

        A thread makes the text, which takes milliseconds.
        """
        return await asyncio.to_thread(self._render, accept)

    def collect(self) -> Iterator[Family]:
        """Yield the present metrics, and the metrics that Prometheus has for every process."""
        if not is_sdk_disabled() and (data := self._reader.get_metrics_data()) is not None:
            yield from self._translator.translate(self._histograms.add_to(data))
        yield from self._process.collect()

    def _render(self, accept: str) -> MetricsText:
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(_Once(self))
        with self._lock:
            return MetricsText(encode(registry), content_type)


class _Once(Collector):
    """A collector without names. For the names, registration would collect the metrics."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterable[Family]:
        return self._metrics.collect()


@lru_cache(maxsize=1)
def open_prometheus_metrics(service_name: str) -> PrometheusMetrics:
    """Return the metrics of this process for Prometheus, the same at each call."""
    return PrometheusMetrics(service_name)


class _Translator:
    """Translates what the SDK has collected. It remembers the last exemplar of each bucket.

    The SDK gives each exemplar to one collection only, and there may be several scrapers.
    """

    def __init__(self) -> None:
        # By histogram, attributes and bucket.
        self._exemplars: dict[tuple[str, frozenset[tuple[str, object]], int], Exemplar] = {}

    def translate(self, data: "MetricsData") -> Iterator[Family]:
        for resource in data.resource_metrics:
            attributes = {
                to_name(key): str(value) for key, value in resource.resource.attributes.items()
            }
            yield InfoMetricFamily("target", "The process.", attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    family = self._to_family(metric)
                    if family is not None:
                        yield family

    def _to_family(self, metric: "Metric") -> Family | None:
        from opentelemetry.sdk.metrics.export import Gauge, Histogram, Sum

        name, text = to_name(metric.name), metric.description or ""
        points: Sequence[Any] = metric.data.data_points
        keys = sorted({key for point in points for key in point.attributes or ()})
        options: dict[str, Any] = {
            "labels": [to_name(key) for key in keys],
            "unit": _UNITS.get(metric.unit or "", ""),
        }
        match metric.data:
            case Histogram():
                histogram = HistogramMetricFamily(name, text, **options)
                for point in points:
                    buckets = list(self._read_buckets(metric.name, point))
                    histogram.add_metric(_label_values(keys, point.attributes), buckets, point.sum)
                return histogram
            case Sum(is_monotonic=True):
                family: CounterMetricFamily | GaugeMetricFamily = CounterMetricFamily(
                    name, text, **options
                )
            case Sum() | Gauge():
                family = GaugeMetricFamily(name, text, **options)
            case _:
                # Others come from views of the program.
                return None
        for point in points:
            family.add_metric(_label_values(keys, point.attributes), point.value)
        return family

    def _read_buckets(
        self, name: str, point: "HistogramDataPoint"
    ) -> Iterator[tuple[str, float] | tuple[str, float, Exemplar]]:
        attributes = frozenset((point.attributes or {}).items())
        for exemplar in point.exemplars:
            if exemplar.trace_id and exemplar.span_id:
                labels = {
                    "trace_id": f"{exemplar.trace_id:032x}",
                    "span_id": f"{exemplar.span_id:016x}",
                }
                index = bisect_left(point.explicit_bounds, exemplar.value)
                self._exemplars[name, attributes, index] = Exemplar(
                    labels, exemplar.value, exemplar.time_unix_nano / 1e9
                )
        bounds = (*point.explicit_bounds, float("inf"))
        for index, (bound, count) in enumerate(
            zip(bounds, accumulate(point.bucket_counts), strict=True)
        ):
            text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
            last = self._exemplars.get((name, attributes, index))
            yield (text, count) if last is None else (text, count, last)


def _label_values(keys: Sequence[str], attributes: Mapping[str, object] | None) -> list[str]:
    return [str((attributes or {}).get(key, "")) for key in keys]


def to_name(name: str) -> str:
    """Return the name of an instrument or of an attribute in Prometheus."""
    return _INVALID.sub("_", name)


def family_name(name: str, unit: str) -> str:
    """Return the name of an instrument's family in Prometheus, with its unit."""
    suffix = _UNITS.get(unit, "")
    return f"{to_name(name)}_{suffix}" if suffix else to_name(name)
