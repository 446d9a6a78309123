"""CLIENT spans and durations of the calls of a channel. The spans are the servers' parents.

Plain calls are traced by their methods, and not intercepted: a grpc interceptor runs every call in
its own task, and cancellation does not pass through it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments


class MethodTracer:
    """Makes the CLIENT spans of one method at one address.

    A quiet method has no spans. A call within this process has none here either: the SERVER span
    then belongs directly to the span of the caller.
    """

    __slots__ = ("address", "attributes", "is_in_process", "is_quiet", "method")

    def __init__(self, method: str, address: str, *, is_in_process: bool = False) -> None:
        self.method: str = method
        self.is_quiet: bool = method.startswith(telemetry.QUIET_METHODS)
        self.is_in_process: bool = is_in_process
        host, separator, port = address.rpartition(":")
        has_port = bool(separator) and port.isdecimal()
        self.address: tuple[str, str | int] = (
            host if has_port else address,
            int(port) if has_port else "",
        )
        """The host, and the port if there is one."""
        self.attributes: dict[str, str | int] = {
            telemetry.RPC_SYSTEM_NAME: "grpc",
            telemetry.RPC_METHOD: method,
            telemetry.SERVER_ADDRESS: self.address[0],
        }
        """The attributes of each span."""
        if has_port:
            self.attributes[telemetry.SERVER_PORT] = int(port)

    def start_plain(
        self,
        start: Callable[..., Any],
        *request: object,
        metadata: tuple[tuple[str, str | bytes], ...],
        is_stream: bool,
        **options: object,
    ) -> Any:  # noqa: ANN401  a call object of the method's own arity
        """Start a plain call by `start`, and trace it.

        The span ends with the call, even if the response is not read to the end. `is_stream` means
        that the response is a stream.
        """
        if self.is_quiet:
            return start(*request, metadata=metadata, **options)
        traced = ClientCall(self)
        try:
            call = start(*request, metadata=(*metadata, *traced.carrier.items()), **options)
        except BaseException as error:
            traced.fail(error)
            raise
        # A call is done when it is answered, failed or canceled, by its reader or with its channel.
        # A stream that is only dropped stays open, so readers cancel their calls.
        call.add_done_callback(partial(_end_call, traced, is_stream))
        return call


class ClientCall:
    """The span and the time of a call, which starts with this object. Call `end` once."""

    __slots__ = ("_span", "_started_s", "_tracer", "carrier")

    def __init__(self, tracer: MethodTracer) -> None:
        self._tracer = tracer
        span, carrier = _start_span(tracer)
        self._span = span
        self._started_s = time.perf_counter()
        self.carrier: dict[str, str] = carrier
        """Carries the span's context to the server."""

    def end(self, code: str, *, is_stream: bool) -> None:
        """End the call by the code it ended with."""
        self._span.set_attribute(telemetry.RPC_STATUS_CODE, code)
        # A reader may cancel a stream at any time, which is no failure.
        is_canceled_by_reader = is_stream and code == "CANCELLED"
        is_error = code != "OK" and not is_canceled_by_reader
        if is_error:
            telemetry.mark_error(self._span, code)
        self._record_duration(code, is_error=is_error)
        self._span.end()

    def fail(self, error: BaseException) -> None:
        """End the call by the error that it could not be started for."""
        telemetry.mark_error(self._span, error)
        self._span.end()

    def _record_duration(self, code: str, *, is_error: bool) -> None:
        """Record the duration of a call to another process, with its span as the exemplar."""
        tracer = self._tracer
        if tracer.is_in_process:
            return
        instruments.RPC_CLIENT_DURATION.record(
            time.perf_counter() - self._started_s,
            "grpc",
            tracer.method,
            code,
            code if is_error else "",
            *tracer.address,
            span=self._span,
        )


def _start_span(tracer: MethodTracer) -> tuple[Span, dict[str, str]]:
    """Start the span of a call; return it with the carrier of its context."""
    if tracer.is_quiet:
        return trace.INVALID_SPAN, {}
    if tracer.is_in_process:
        return trace.INVALID_SPAN, telemetry.inject()
    attributes = tracer.attributes
    service = telemetry.current_service(otel_context.get_current())
    if service:
        attributes = {**attributes, telemetry.SERVICE: service}
    span = telemetry.get_tracer().start_span(
        tracer.method, kind=SpanKind.CLIENT, attributes=attributes
    )
    return span, telemetry.inject_span(span)


def _end_call(traced: ClientCall, is_stream: bool, call: grpc.aio.Call) -> None:  # noqa: FBT001
    traced.end(_read_code(call).name, is_stream=is_stream)


def _read_code(call: grpc.aio.Call) -> grpc.StatusCode:
    """Return the code of a call that is done. Its coroutine returns without waiting."""
    coroutine = call.code()
    try:
        coroutine.send(None)
    except StopIteration as result:
        code: grpc.StatusCode = result.value
        return code
    finally:
        coroutine.close()
    return grpc.StatusCode.UNKNOWN
