"""Span processors: a processor that exports batches to a target, and a set of processors."""

import os
import threading
from collections.abc import Iterable
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from trunkline.observe.traces.exporters import RETRY_S, RetryingExporter

# A span is in the store about a second after its end; OpenTelemetry's default is 5 s.
_SCHEDULE_DELAY_MS: Final = 1000
# A span is in the queue twice, after its start and after its end.
_QUEUE_SIZE: Final = 16384


class _SpanAlarm(threading.Event):
    """Interrupts the pauses of an export thread, which begin with the first span.

    OpenTelemetry's thread wakes up after each pause, whether or not there are spans.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_spans = threading.Event()

    def note_span(self) -> None:
        """Begin the pause after which the span is exported."""
        if not self._has_spans.is_set():
            self._has_spans.set()

    def set(self) -> None:
        """End the pause now."""
        super().set()
        self._has_spans.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a span, and then for the timeout or `set`; return whether it was `set`."""
        self._has_spans.wait()
        # Not after the pause: a span during the export needs the next one.
        self._has_spans.clear()
        if is_interrupted := super().wait(timeout):
            # Only whole batches are exported then. The rest needs a pause.
            self._has_spans.set()
        return is_interrupted


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
        # The thread has begun its first pause, which has to end.
        first_alarm, self._alarm = self._batch_processor._worker_awaken, _SpanAlarm()  # noqa: SLF001
        self._batch_processor._worker_awaken = self._alarm  # noqa: SLF001
        first_alarm.set()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Queue a span before any span below it, in case it's still open at the next export."""
        if not self.is_collector and span.context.trace_flags.sampled:
            self._batch_processor.emit(span)
            self._alarm.note_span()

    def on_end(self, span: ReadableSpan) -> None:
        """Queue an ended span."""
        super().on_end(span)
        self._alarm.note_span()

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
