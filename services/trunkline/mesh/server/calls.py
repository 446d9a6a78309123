"""The span, the error, the duration and the log line of every call that this process answers."""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline.errors import InternalError, TrunklineError
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments

logger = logging.getLogger(__name__)


class ServerCall:
    """A call that is being answered. Run its code inside `activate`, then `succeed` or `fail`."""

    __slots__ = ("_context", "_is_measured", "_is_stream", "_span", "_started_s", "method")

    def __init__(
        self,
        method: str,
        carrier: Mapping[str, str],
        *,
        remaining_s: float | None,
        is_stream: bool,
    ) -> None:
        """Start the call's span as a child of the carrier's (W3C Trace Context)."""
        self.method = method
        self._is_stream = is_stream
        self._started_s = time.perf_counter()
        self._span: Span = trace.INVALID_SPAN
        self._context = otel_context.get_current()
        self._is_measured = not method.startswith(telemetry.QUIET_METHODS)
        if not self._is_measured:
            return
        attributes: dict[str, str | float] = {
            telemetry.RPC_SYSTEM_NAME: "grpc",
            telemetry.RPC_METHOD: method,
        }
        if remaining_s is not None:
            attributes[telemetry.RPC_DEADLINE_S] = round(remaining_s, 3)
        self._span, self._context = telemetry.start_span(
            method,
            kind=SpanKind.SERVER,
            attributes=attributes,
            context=telemetry.extract(carrier),
        )

    def activate(self) -> AbstractContextManager[None]:
        """Make the call's span the current span of the block."""
        return telemetry.use_context(self._context)

    def succeed(self) -> None:
        """Record that the call was answered."""
        self._end("OK")

    def fail(self, cause: BaseException, *, code: str) -> BaseException:
        """Record the exception that ended the call; return the error for its caller.

        A defect is logged and becomes an InternalError without details. `code` is the status of
        cancellations, and of errors that the handler has sent by gRPC itself.
        """
        error = self._to_known_error(cause)
        if isinstance(error, TrunklineError):
            code = error.code.value
        if code in telemetry.GRPC_SERVER_ERRORS:
            telemetry.mark_error(self._span, error)
        # A reader may cancel a stream at any time, which is no failure.
        self._end(code, is_error=not (self._is_stream and code == "CANCELLED"))
        return error

    def _to_known_error(self, error: BaseException) -> BaseException:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            # A task group wraps even a single error.
            error = error.exceptions[0]
        if isinstance(error, TrunklineError | grpc.aio.AbortError):
            return error
        if not isinstance(error, Exception):
            return error
        span_context = self._span.get_span_context()
        trace_id = trace.format_trace_id(span_context.trace_id) if span_context.is_valid else ""
        extra = {"method": self.method, "trace_id": trace_id}
        logger.error("rpc.failed", exc_info=error, extra=extra)
        return InternalError(trace_id)

    def _end(self, code: str, *, is_error: bool = False) -> None:
        took_s = time.perf_counter() - self._started_s
        self._span.set_attribute(telemetry.RPC_STATUS_CODE, code)
        self._span.end()
        if self._is_measured:
            # Callers can invent methods.
            method = self.method if code != "UNIMPLEMENTED" else "_OTHER"
            error_type = code if is_error else ""
            instruments.RPC_SERVER_DURATION.record(
                took_s, "grpc", method, code, error_type, span=self._span
            )
        if logger.isEnabledFor(logging.INFO):
            extra = {"method": self.method, "code": code, "took_ms": took_s * 1000}
            with telemetry.use_context(self._context):
                logger.info("rpc.answered", extra=extra)
