"""Gets spans to their target through its bad times: a bounded queue, and tries with back-off.

Both run in threads of their own. What goes wrong is logged once and costs spans, never work.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from trunkline.client.backoff import Backoff

logger = logging.getLogger(__name__)

# Spans wait so long for others to travel with; they are to be seen within a second.
EXPORT_DELAY_S: Final = 0.25
QUEUE_LIMIT: Final = 8192
_BATCH_LIMIT: Final = 512
_HOLD_S: Final = 10.0
# How long the last delivery may take.
_CLOSE_S: Final = 30.0


class Delivery(SpanExporter):
    """Passes spans on to another exporter, again and again until it takes them.

    For `hold_s` at most: then a batch is lost, and the next has its turn. Meanwhile spans wait in
    the processor's queue, and the oldest are lost when it is full. When it begins to fail or to
    lose spans, and when all is well again, that is one log line; the last says how many were lost.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        target: str,
        hold_s: float = _HOLD_S,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self._exporter = exporter
        self._target = target
        self._hold_s = hold_s
        self._queue_limit = queue_limit
        # Spans end in any thread, and a flush exports beside the processor's own.
        self._lock = threading.Lock()
        self._waiting = 0
        self._lost = 0
        self._fails = False
        self._overflows = False
        self._is_urgent = threading.Event()

    def note_waiting(self) -> None:
        """A span is being put into the queue."""
        with self._lock:
            self._waiting += 1
            if self._waiting <= self._queue_limit:
                return
            self._waiting = self._queue_limit
            self._lost += 1
            overflowed, self._overflows = self._overflows, True
        if not overflowed:
            extra = {"target": self._target, "limit": self._queue_limit}
            logger.warning("traces.queue_full", extra=extra)

    def hurry(self, *, is_urgent: bool) -> None:
        """While it is urgent, try everything once and hold nothing back."""
        if is_urgent:
            self._is_urgent.set()
        else:
            self._is_urgent.clear()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export by the other exporter, whose exceptions end here."""
        with self._lock:
            self._waiting = max(0, self._waiting - len(spans))
        backoff = Backoff()
        deadline = time.monotonic() + self._hold_s
        while (result := self._try(spans)) is not SpanExportResult.SUCCESS:
            self._note_failure()
            pause_s = backoff.next_s()
            if time.monotonic() + pause_s > deadline or self._is_urgent.wait(pause_s):
                with self._lock:
                    self._lost += len(spans)
                return result
        self._note_success()
        return result

    def shutdown(self) -> None:
        """Shut the other exporter down."""
        self._exporter.shutdown()

    def _try(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return self._exporter.export(spans)
        # An exporter's trouble of whatever kind may not disturb work, nor fill the log.
        except Exception as error:
            logger.debug("traces.export_raised", exc_info=error, extra={"target": self._target})
            return SpanExportResult.FAILURE

    def _note_failure(self) -> None:
        with self._lock:
            failed, self._fails = self._fails, True
        if not failed:
            logger.warning("traces.export_failed", extra={"target": self._target})

    def _note_success(self) -> None:
        with self._lock:
            # A queue that is nearly full overflows again in a moment: that is still the same.
            if not (self._fails or (self._overflows and self._waiting <= self._queue_limit / 2)):
                return
            lost, self._lost = self._lost, 0
            self._fails = self._overflows = False
        extra = {"target": self._target, "lost": lost}
        logger.info("traces.export_recovered", extra=extra)


class DeliveryProcessor(SpanProcessor):
    """Takes spans as they end, and hands them in batches to a delivery.

    OpenTelemetry's own looks four times a second whether there are any; this one sleeps meanwhile.
    """

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._queue: deque[ReadableSpan] = deque(maxlen=QUEUE_LIMIT)
        self._has_spans = threading.Event()
        self._is_urgent = threading.Event()
        self._is_closed = False
        self._turn = threading.Lock()
        self._thread = threading.Thread(name="trunkline-spans", target=self._run, daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Put a span into the queue, if its trace is sampled."""
        if self._is_closed or not (span.context and span.context.trace_flags.sampled):
            return
        self._delivery.note_waiting()
        self._queue.append(span)
        if len(self._queue) >= _BATCH_LIMIT and not self._is_urgent.is_set():
            self._is_urgent.set()
        if not self._has_spans.is_set():
            self._has_spans.set()

    def hurry(self, *, is_urgent: bool) -> None:
        """As `Delivery.hurry`."""
        self._delivery.hurry(is_urgent=is_urgent)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Deliver what waits now; False once it is closed."""
        if self._is_closed:
            return False
        self._deliver()
        return True

    def shutdown(self) -> None:
        """As `close`."""
        self.close()

    def close(self) -> None:
        """Deliver what waits, and take no more."""
        if self._is_closed:
            return
        self._is_closed = True
        self._is_urgent.set()
        self._has_spans.set()
        self._thread.join(_CLOSE_S)
        self._delivery.shutdown()

    def _run(self) -> None:
        while not self._is_closed:
            self._has_spans.wait()
            self._is_urgent.wait(EXPORT_DELAY_S)
            # First, so that whoever comes while this batch is under way is seen.
            self._has_spans.clear()
            self._is_urgent.clear()
            self._deliver()
        self._deliver()

    def _deliver(self) -> None:
        """Deliver what is in the queue, and not what comes meanwhile."""
        with self._turn:
            left = len(self._queue)
            while left > 0:
                batch = [self._queue.popleft() for _ in range(min(left, _BATCH_LIMIT))]
                left -= len(batch)
                # Whatever it is sent by makes no spans of that.
                token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
                try:
                    self._delivery.export(batch)
                finally:
                    detach(token)
