"""The measurements of this process in a block of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from trunkline.observe.metrics.histograms import HistogramReader
from trunkline.observe.metrics.sdk import get_provider

_NOTHING: Final = 0.0


class Measurements:
    """The numbers of all instruments, less those of before. The count of a histogram is one."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._histograms = HistogramReader()
        # The instruments stay connected to the provider of the process, for the tests after this.
        self._provider = get_provider("test")
        self._provider.add_metric_reader(self._reader)
        self._before = self._read()

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """Return an instrument's numbers that changed, by the values of its attributes."""
        return {
            values: round(number - self._before.get((found, values), _NOTHING), 9)
            for (found, values), number in self._read().items()
            if found == name and number != self._before.get((found, values), _NOTHING)
        }

    def close(self) -> None:
        """Stop to measure."""
        self._provider.remove_metric_reader(self._reader)

    def _read(self) -> dict[tuple[str, tuple[str, ...]], float]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            (metric.name, tuple(str(value) for value in (point.attributes or {}).values())): (
                point.value if isinstance(point, NumberDataPoint) else point.count
            )
            for metric in self._histograms.add_to(data).resource_metrics[0].scope_metrics[0].metrics
            for point in metric.data.data_points
        }


@contextmanager
def measuring() -> Iterator[Measurements]:
    """Measure within a block, and read at any time in it."""
    measurements = Measurements()
    try:
        yield measurements
    finally:
        measurements.close()
