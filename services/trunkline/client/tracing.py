"""Makes each call of a channel one CLIENT span that its server's span hangs on.

A wrapper of the channel's methods and no grpc interceptor: those run every call in a task of
their own, and a cancel doesn't reach through them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline import telemetry

# The mesh's own upkeep: nobody asks for its spans, and they would bury those of real work.
# The same list is in trunkline.server.interceptor.
QUIET_METHODS = (
    "trunkline.v1.RegistryService/",
    "trunkline.v1.TraceService/",
    "trunkline.v1.ToolService/WatchTools",
    "grpc.health.",
    "grpc.reflection.",
    "opentelemetry.",
)


class TracedMethod:
    """One method of a channel, of any arity; `is_stream` when it answers with a stream."""

    def __init__(
        self, call: Callable[..., Any], *, method: str, address: str, is_stream: bool
    ) -> None:
        self._call = call
        self._is_stream = is_stream
        self._method = method.removeprefix("/")
        self._is_quiet = self._method.startswith(QUIET_METHODS)
        host, separator, port = address.rpartition(":")
        self._attributes: dict[str, str | int] = {
            telemetry.RPC_SYSTEM_NAME: "grpc",
            telemetry.RPC_METHOD: self._method,
            telemetry.SERVER_ADDRESS: host if separator and port.isdecimal() else address,
        }
        if separator and port.isdecimal():
            self._attributes[telemetry.SERVER_PORT] = int(port)

    def __call__(
        self,
        *request: object,
        metadata: Iterable[tuple[str, str | bytes]] | None = None,
        **options: object,
    ) -> Any:  # noqa: ANN401  a call object of the method's own arity
        """Begin the call. Its span ends with it, whether it is read to its end or not."""
        if self._is_quiet:
            return self._call(*request, metadata=metadata, **options)
        span = self._start_span()
        carrier = telemetry.inject(trace.set_span_in_context(span))
        try:
            call = self._call(*request, metadata=(*(metadata or ()), *carrier.items()), **options)
        except BaseException as error:
            telemetry.mark_error(span, error)
            span.end()
            raise
        # Done means: answered, failed or cancelled, by its reader or by the end of its channel. A
        # stream that is merely dropped goes on, so readers use the context managers of this room.
        call.add_done_callback(partial(_end_span, span, self._is_stream))
        return call

    def _start_span(self) -> Span:
        attributes = self._attributes
        service = telemetry.service_of(otel_context.get_current())
        if service:
            attributes = {**attributes, telemetry.SERVICE: service}
        return telemetry.tracer().start_span(
            self._method, kind=SpanKind.CLIENT, attributes=attributes
        )


def _end_span(span: Span, is_stream: bool, call: grpc.aio.Call) -> None:  # noqa: FBT001
    code = _code_of(call)
    span.set_attribute(telemetry.RPC_STATUS_CODE, code.name)
    # A reader that leaves a stream has got what it wanted, and nothing failed.
    has_left = is_stream and code is grpc.StatusCode.CANCELLED
    if code is not grpc.StatusCode.OK and not has_left:
        telemetry.mark_error(span, code.name)
    span.end()


def _code_of(call: grpc.aio.Call) -> grpc.StatusCode:
    """Return the code of a call that is done: its coroutine has nothing left to wait for."""
    coroutine = call.code()
    try:
        coroutine.send(None)
    except StopIteration as result:
        code: grpc.StatusCode = result.value
        return code
    finally:
        coroutine.close()
    return grpc.StatusCode.UNKNOWN
