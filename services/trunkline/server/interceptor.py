"""What every call to a server gets: a span below the caller's, our errors, a line in the log."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, TypeAlias

import grpc
from google.rpc import code_pb2
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline import telemetry
from trunkline.errors import (
    InternalError,
    PeerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.server.status import abort

logger = logging.getLogger(__name__)

# The mesh's own upkeep: nobody asks for its spans, and they would bury those of real work; spans of
# the export of spans would never end. The same list is in trunkline.client.tracing.
QUIET_METHODS = (
    "trunkline.v1.RegistryService/",
    "trunkline.v1.TraceService/",
    "trunkline.v1.ToolService/WatchTools",
    "grpc.health.",
    "grpc.reflection.",
    "opentelemetry.",
)

_TRACE_KEYS = ("traceparent", "tracestate")

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
# Quoted: the class takes no parameters at run time.
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_FoundHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps a server's handlers, of all arities: coroutines and async generators."""

    def __init__(self) -> None:
        self._upkeep: set[asyncio.Timeout] = set()

    def end_upkeep(self) -> None:
        """End the mesh's own watches, which never end by themselves: their readers come back."""
        for scope in self._upkeep:
            scope.reschedule(asyncio.get_running_loop().time())

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_FoundHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Return the handler, wrapped; for a method nobody serves, one that says so."""
        method = handler_call_details.method.removeprefix("/")
        handler = await continuation(handler_call_details)
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(
                _answering_many(method, _refuse(method), nullcontext)
            )
        # One of the four is set.
        behaviour: Any = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )
        make = _MAKE_HANDLER[handler.request_streaming, handler.response_streaming]
        if handler.response_streaming:
            bounds = self._until_stop if method.startswith(QUIET_METHODS) else nullcontext
            answer = _answering_many(method, behaviour, bounds)
        else:
            answer = _answering_one(method, behaviour)
        return make(
            answer,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    @asynccontextmanager
    async def _until_stop(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(None) as scope:
                self._upkeep.add(scope)
                try:
                    yield
                finally:
                    self._upkeep.discard(scope)
        except TimeoutError:
            if not scope.expired():
                raise
            raise PeerUnavailableError("this host", "it is shutting down") from None


# By whether the request and the response are streams.
_MAKE_HANDLER: dict[tuple[bool, bool], Callable[..., _Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _answering_one(method: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    async def answer(request: object, context: _Context) -> object:
        async with _answered(method, context, is_stream=False):
            return await behaviour(request, context)

    return answer


def _answering_many(
    method: str,
    behaviour: Callable[..., Any],
    bounds: Callable[[], AbstractAsyncContextManager[None]],
) -> Callable[..., Any]:
    # A coroutine that writes, not a generator: a call that is cancelled would leave a generator to
    # the garbage collector, and with it the span and whatever the handler holds.
    async def answer(request: object, context: _Context) -> None:
        async with _answered(method, context, is_stream=True), bounds():
            responses = behaviour(request, context)
            if not hasattr(responses, "__aiter__"):
                await responses
                return
            async with aclosing(responses):
                async for response in responses:
                    await context.write(response)

    return answer


def _refuse(method: str) -> Callable[..., Any]:
    async def refuse(_request: object, _context: _Context) -> None:
        raise UnsupportedOperationError(method, "this host doesn't serve it")

    return refuse


@asynccontextmanager
async def _answered(method: str, context: _Context, *, is_stream: bool) -> AsyncIterator[None]:
    """Trace a call, and end it with our error if it ends with any."""
    started = time.monotonic()
    code = "OK"
    left: BaseException | None = None
    try:
        with _span(method, context) as span:
            try:
                yield
            except BaseException as raised:
                error = _known(raised, method, context)
                code = _code_of(error, context)
                if is_stream and code == "CANCELLED":
                    # A reader that leaves a stream has got what it wanted: nothing failed.
                    left = error
                elif error is raised:
                    raise
                else:
                    raise error from raised
            finally:
                span.set_attribute(telemetry.RPC_STATUS_CODE, code)
        if left is not None:
            raise left
    except TrunklineError as error:
        await abort(context, error)
    finally:
        if logger.isEnabledFor(logging.INFO):
            took_ms = (time.monotonic() - started) * 1000
            logger.info("rpc.answered", extra={"method": method, "code": code, "took_ms": took_ms})


@contextmanager
def _span(method: str, context: _Context) -> Iterator[Span]:
    if method.startswith(QUIET_METHODS):
        yield trace.INVALID_SPAN
        return
    carrier = {
        key: value
        for key, value in context.invocation_metadata() or ()
        if key in _TRACE_KEYS and isinstance(value, str)
    }
    attributes: dict[str, str | float] = {
        telemetry.RPC_SYSTEM_NAME: "grpc",
        telemetry.RPC_METHOD: method,
    }
    remaining_s = _remaining_s(context)
    if remaining_s is not None:
        attributes[telemetry.RPC_DEADLINE_S] = round(remaining_s, 3)
    with telemetry.span(
        method, kind=SpanKind.SERVER, attributes=attributes, context=telemetry.extract(carrier)
    ) as span:
        yield span


def _code_of(error: BaseException, context: _Context) -> str:
    if isinstance(error, TrunklineError):
        return error.code.value
    if isinstance(error, grpc.aio.AbortError):
        # Other people's handlers end calls by themselves.
        return _code_name(context.code())
    return "DEADLINE_EXCEEDED" if _remaining_s(context) == 0 else "CANCELLED"


def _known(error: BaseException, method: str, context: _Context) -> BaseException:
    """Return ours for any error; a defect goes to the log and is not shown.

    A cancel, and an error that grpc has been told already, are returned as they are.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        # A task group puts even a single error into a group.
        error = error.exceptions[0]
    if isinstance(error, TrunklineError | grpc.aio.AbortError) or not isinstance(error, Exception):
        return error
    if isinstance(error, NotImplementedError) and _code_name(context.code()) == "UNIMPLEMENTED":
        # How generated code answers for methods that a servicer leaves out.
        return UnsupportedOperationError(method, "this host doesn't serve it")
    trace_id = telemetry.trace_id()
    logger.error("rpc.failed", exc_info=error, extra={"method": method, "trace_id": trace_id})
    return InternalError(trace_id)


def _remaining_s(context: _Context) -> float | None:
    remaining_s: float | None = context.time_remaining()
    return None if remaining_s is None else max(0.0, remaining_s)


def _code_name(code: grpc.StatusCode | int | None) -> str:
    if isinstance(code, grpc.StatusCode):
        return code.name
    name: str = code_pb2.Code.Name(code or 0)
    return name
