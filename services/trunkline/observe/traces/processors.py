"""Span processors: a processor that exports batches to a target, and a set of processors."""

import os
from collections.abc import Iterable
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from trunkline.observe.traces.exporters import RETRY_S, RetryingExporter

# A span is in the store about a second after its end; OpenTelemetry's default is 5 s. An idle
# process wakes up this often too, at 0.1 ms of CPU.
_SCHEDULE_DELAY_MS: Final = 1000
# A span is in the queue twice, after its start and after its end.
_QUEUE_SIZE: Final = 16384


class TargetProcessor(BatchSpanProcessor):
    """OpenTelemetry's batch processor for one target, with the mesh's defaults.

    The `OTEL_BSP_*` variables override them.

    A span that is still open when its batch is exported is exported without its end, and again when
    it has ended. So if the process is killed, the open spans are in the trace as the parents of
    other spans. Collectors get only ended spans.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        target: str,
        retry_s: float = RETRY_S,
        is_collector: bool = False,
    ) -> None:
        """Export in batches to `exporter`; `target` names it in the log."""
        self.is_collector = is_collector
        self._retrying = RetryingExporter(exporter, target=target, retry_s=retry_s)
        super().__init__(
            self._retrying,
            max_queue_size=_default("OTEL_BSP_MAX_QUEUE_SIZE", _QUEUE_SIZE),
            schedule_delay_millis=_default("OTEL_BSP_SCHEDULE_DELAY", _SCHEDULE_DELAY_MS),
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Queue a span before any span below it, in case it's still open at the next export."""
        if not self.is_collector and span.context.trace_flags.sampled:
            self._batch_processor.emit(span)

    def set_urgent(self, *, is_urgent: bool) -> None:
        """While urgent, make a single attempt for each batch."""
        self._retrying.set_urgent(is_urgent=is_urgent)

    def shutdown(self) -> None:
        """Export what is queued, and take no more spans."""
        super().shutdown()  # type: ignore[no-untyped-call]  # OpenTelemetry's has no types


def _default(variable: str, value: int) -> int | None:
    """Return None if the variable is set, so that OpenTelemetry reads it."""
    return None if variable in os.environ else value


class ProcessorSet(SpanProcessor):
    """Passes spans to the processors that are in the set at the time.

    A `TracerProvider` only adds processors; targets of a mesh process also come and go.
    """

    def __init__(self) -> None:
        # A tuple that is replaced as a whole, because spans end in any thread.
        self._processors: tuple[TargetProcessor, ...] = ()

    @property
    def collectors(self) -> tuple[TargetProcessor, ...]:
        """The processors that export to the user's collector."""
        return tuple(processor for processor in self._processors if processor.is_collector)

    def add(self, processors: Iterable[TargetProcessor]) -> None:
        """Pass spans that start or end from now on to these processors too."""
        self._processors = (*self._processors, *processors)

    def remove(self, processors: Iterable[TargetProcessor]) -> None:
        """Pass no more spans to these processors."""
        removed = set(processors)
        self._processors = tuple(
            processor for processor in self._processors if processor not in removed
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Pass a span on that starts."""
        for processor in self._processors:
            processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass an ended span on."""
        for processor in self._processors:
            processor.on_end(span)

    def shutdown(self) -> None:
        """Shut all processors down."""
        for processor in self._processors:
            processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush all processors, whether or not one fails; return False if one has failed."""
        results = [processor.force_flush(timeout_millis) for processor in self._processors]
        return all(results)
