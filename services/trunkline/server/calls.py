"""What every call gets that this process answers: a span, our errors, a line in the log."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline import telemetry
from trunkline.errors import InternalError, TrunklineError

logger = logging.getLogger(__name__)


class ServerCall:
    """One call being answered. Work for it inside `current`; then `succeed` or `fail`, once."""

    __slots__ = ("_context", "_is_stream", "_span", "_started_s", "method")

    def __init__(
        self,
        method: str,
        carrier: Mapping[str, str],
        *,
        remaining_s: float | None,
        is_stream: bool,
    ) -> None:
        """Begin the call's span, below the one that the carrier (W3C Trace Context) names."""
        self.method = method
        self._is_stream = is_stream
        self._started_s = time.monotonic()
        self._span: Span = trace.INVALID_SPAN
        self._context = otel_context.get_current()
        if method.startswith(telemetry.QUIET_METHODS):
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

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Make the call's span the current one inside the block."""
        token = otel_context.attach(self._context)
        try:
            yield
        finally:
            otel_context.detach(token)

    def succeed(self) -> None:
        """Note that the call was answered."""
        self._end("OK")

    def fail(self, raised: BaseException, *, code: str) -> BaseException:
        """Note what ended the call, and return what its caller is told.

        That is one of ours for any error; a defect goes to the log and is not shown. A cancel, and
        an error that gRPC has been told already, have no code of their own: then it is `code`.
        """
        error = self._known(raised)
        if isinstance(error, TrunklineError):
            code = error.code.value
        # A reader that leaves a stream has got what it wanted: nothing failed.
        if not (self._is_stream and code == "CANCELLED"):
            telemetry.mark_error(self._span, error)
        self._end(code)
        return error

    def _known(self, error: BaseException) -> BaseException:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            # A task group puts even a single error into a group.
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

    def _end(self, code: str) -> None:
        self._span.set_attribute(telemetry.RPC_STATUS_CODE, code)
        self._span.end()
        if logger.isEnabledFor(logging.INFO):
            took_ms = (time.monotonic() - self._started_s) * 1000
            extra = {"method": self.method, "code": code, "took_ms": took_ms}
            logger.info("rpc.answered", extra=extra)
