"""Sets up OpenTelemetry's SDK for metrics: the provider of a process, and its exports over OTLP.

Resource, intervals, exemplars and exporters follow the standard `OTEL_*` variables.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from opentelemetry import metrics

from trunkline.observe import telemetry
from trunkline.observe.flushing import finish_exports
from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.otel_environment import is_sdk_disabled, make_exporters, make_resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader


class Metrics:
    """The exports that `configure_metrics` started."""

    def __init__(self, readers: "tuple[MetricReader, ...]" = ()) -> None:
        self._readers = readers

    def shutdown(self) -> None:
        """Export a last time, and stop. It blocks for three seconds at most."""
        finish_exports(reader.shutdown for reader in self._readers)


def configure_metrics(service_name: str) -> Metrics:
    """Export this process's metrics to a collector, if the environment names one.

    A collector is used if `OTEL_METRICS_EXPORTER` names an exporter, or if
    `OTEL_EXPORTER_OTLP_ENDPOINT` or its variant for metrics is set. Without exports and without
    `/metrics`, nothing is measured.
    """
    if is_sdk_disabled():
        return Metrics()
    return Metrics(tuple(_make_readers(service_name)))


def _make_readers(service_name: str) -> "Iterator[MetricReader]":
    for target, exporter in make_exporters("metrics"):
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        from trunkline.observe.metrics.exporter import ReportingExporter

        reporting = ReportingExporter(exporter, target=target)
        reader = PeriodicExportingMetricReader(reporting)
        get_provider(service_name).add_metric_reader(reader)
        yield reader


def get_provider(service_name: str) -> "MeterProvider":
    """Return the process's provider, to which our instruments are connected.

    A provider that the program has set before stays.
    """
    from opentelemetry.sdk.metrics import MeterProvider

    provider = metrics.get_meter_provider()
    if not isinstance(provider, MeterProvider):
        # The caller that adds a reader shuts it down.
        provider = MeterProvider(resource=make_resource(service_name), shutdown_on_exit=False)
        metrics.set_meter_provider(provider)
    _connect(provider)
    return provider


@lru_cache(maxsize=1)
def _connect(provider: "MeterProvider") -> None:
    meter = provider.get_meter(telemetry.TRACER_NAME)
    for instrument in INSTRUMENTS:
        instrument.connect(meter)
