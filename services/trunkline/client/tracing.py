"""CLIENT spans for the calls of a channel, which are the parents of the servers' spans.

The channel's methods are wrapped instead of intercepted: a grpc interceptor runs every call in its
own task, and cancellation does not pass through it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline import telemetry


class MethodTracer:
    """Makes the CLIENT spans of one method at one address.

    A quiet method has no spans. A call within this process has none here either: the SERVER span
    then belongs directly to the span of the caller.
    """

    __slots__ = ("_attributes", "_is_in_process", "is_quiet", "method")

    def __init__(self, method: str, address: str, *, is_in_process: bool = False) -> None:
        self.method: str = method
        self.is_quiet: bool = method.startswith(telemetry.QUIET_METHODS)
        self._is_in_process = is_in_process
        host, separator, port = address.rpartition(":")
        self._attributes: dict[str, str | int] = {
            telemetry.RPC_SYSTEM_NAME: "grpc",
            telemetry.RPC_METHOD: method,
            telemetry.SERVER_ADDRESS: host if separator and port.isdecimal() else address,
        }
        if separator and port.isdecimal():
            self._attributes[telemetry.SERVER_PORT] = int(port)

    def start_span(self) -> tuple[Span, dict[str, str]]:
        """Start a span; return it with the carrier of its context for the server."""
        if self.is_quiet:
            return trace.INVALID_SPAN, {}
        if self._is_in_process:
            return trace.INVALID_SPAN, telemetry.inject()
        attributes = self._attributes
        service = telemetry.current_service(otel_context.get_current())
        if service:
            attributes = {**attributes, telemetry.SERVICE: service}
        span = telemetry.get_tracer().start_span(
            self.method, kind=SpanKind.CLIENT, attributes=attributes
        )
        return span, telemetry.inject_span(span)


def end_span(span: Span, code: str, *, is_stream: bool) -> None:
    """End the span of a call by the code it ended with."""
    span.set_attribute(telemetry.RPC_STATUS_CODE, code)
    # A reader may cancel a stream at any time, which is no failure.
    is_canceled_by_reader = is_stream and code == "CANCELLED"
    if code != "OK" and not is_canceled_by_reader:
        telemetry.mark_error(span, code)
    span.end()


class TracedMethod:
    """A method of a channel, of any arity. `is_stream`: its response is a stream."""

    def __init__(self, call: Callable[..., Any], tracer: MethodTracer, *, is_stream: bool) -> None:
        self._call = call
        self._is_stream = is_stream
        self._tracer = tracer

    def __call__(
        self,
        *request: object,
        metadata: Iterable[tuple[str, str | bytes]] | None = None,
        **options: object,
    ) -> Any:  # noqa: ANN401  a call object of the method's own arity
        """Start the call. Its span ends with it, even if the response is not read to the end."""
        if self._tracer.is_quiet:
            return self._call(*request, metadata=metadata, **options)
        span, carrier = self._tracer.start_span()
        try:
            call = self._call(*request, metadata=(*(metadata or ()), *carrier.items()), **options)
        except BaseException as error:
            telemetry.mark_error(span, error)
            span.end()
            raise
        # A call is done when it is answered, failed or canceled, by its reader or with its channel.
        # A stream that is only dropped stays open, so readers use the clients' context managers.
        call.add_done_callback(partial(_end_call_span, span, self._is_stream))
        return call


def _end_call_span(span: Span, is_stream: bool, call: grpc.aio.Call) -> None:  # noqa: FBT001
    end_span(span, _read_code(call).name, is_stream=is_stream)


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
