"""The exporter of metrics to a collector: OpenTelemetry's own, with our histograms and a log."""

import logging
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from trunkline.observe.metrics.histograms import HistogramReader, is_delta

logger = logging.getLogger(__name__)


class ReportingExporter(MetricExporter):
    """Passes metrics to another exporter, and logs an outage once.

    The first failure logs `metrics.export_failed`, the first success after it
    `metrics.export_recovered`. Nothing is lost with cumulative values, the default.
    """

    def __init__(self, exporter: MetricExporter, *, target: str) -> None:
        """Wrap an exporter. `target` names it in the log."""
        # The SDK's reader reads these of any exporter; there is no public name.
        temporality = exporter._preferred_temporality  # noqa: SLF001
        super().__init__(temporality, exporter._preferred_aggregation)  # noqa: SLF001
        self._exporter = exporter
        self._target = target
        self._histograms = HistogramReader(is_delta=is_delta(temporality))
        self._is_failing = False

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float = 10_000,
        **options: Any,  # noqa: ANN401  as the base class
    ) -> MetricExportResult:
        """Export metrics; exceptions of the wrapped exporter count as failures."""
        try:
            data = self._histograms.add_to(metrics_data)
            result = self._exporter.export(data, timeout_millis=timeout_millis, **options)
        except Exception as error:
            logger.debug("metrics.export_raised", exc_info=error, extra={"target": self._target})
            result = MetricExportResult.FAILURE
        is_failing = result is not MetricExportResult.SUCCESS
        if is_failing and not self._is_failing:
            logger.warning("metrics.export_failed", extra={"target": self._target})
        if self._is_failing and not is_failing:
            logger.info("metrics.export_recovered", extra={"target": self._target})
        self._is_failing = is_failing
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the wrapped exporter."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(
        self,
        timeout_millis: float = 30_000,
        **options: Any,  # noqa: ANN401  as the base class
    ) -> None:
        """Shut the wrapped exporter down."""
        self._exporter.shutdown(timeout_millis, **options)
