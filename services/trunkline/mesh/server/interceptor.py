"""The server interceptor: a span, our errors and a log line for every call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from typing import Any, TypeAlias, TypeGuard

import grpc
from google.rpc import code_pb2

from trunkline.core.identity import Identity
from trunkline.errors import (
    PeerUnavailableError,
    TrunklineError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from trunkline.mesh.server.authorization import Authorize, RequestChecks, caller
from trunkline.mesh.server.batch_stream import BatchStream
from trunkline.mesh.server.calls import ServerCall
from trunkline.mesh.server.requests import make_deserializer
from trunkline.mesh.server.status import abort
from trunkline.mesh.trunk_wire.methods import BATCH_FIELDS
from trunkline.observe import telemetry

# Methods whose streams stay open until the caller cancels them.
_ENDLESS = tuple(
    method for method in telemetry.QUIET_METHODS if method != "trunkline.v1.TrunkService/"
)

_TRACE_KEYS = ("traceparent", "tracestate")

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
# Quoted, because the class is not generic at run time.
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_OptionalHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"

# Returns what a handler gets: its checked request, or an iterator that checks each request.
_Check: TypeAlias = Callable[[RequestChecks, Any], Any]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of a server, of all arities, coroutines and async generators alike."""

    def __init__(self, authorize: Authorize) -> None:
        """`authorize` checks each call before its handler."""
        self._authorize = authorize
        self._endless: set[asyncio.Timeout] = set()
        # The open calls of processes that joined.
        self._joined: dict[asyncio.Timeout, Identity] = {}

    def end_mesh_streams(self) -> None:
        """End the mesh's own endless streams; their callers reconnect."""
        for scope in self._endless:
            scope.reschedule(asyncio.get_running_loop().time())

    def end_revoked(self, instances: Set[str]) -> None:
        """End the calls of processes that are no longer accepted."""
        for scope, identity in self._joined.items():
            if identity.instance in instances:
                scope.reschedule(asyncio.get_running_loop().time())

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_OptionalHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Return the wrapped handler. The handler of an unknown method answers UNIMPLEMENTED."""
        method = handler_call_details.method.removeprefix("/")
        handler = await continuation(handler_call_details)
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(
                self._wrap_stream(method, _refuse(method), RequestChecks.check_each, nullcontext)
            )
        # One of the four is set.
        behaviour: Any = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )
        make = _MAKE_HANDLER[handler.request_streaming, handler.response_streaming]
        is_stream = handler.request_streaming or handler.response_streaming
        bounds = self._until_shutdown if is_stream and method.startswith(_ENDLESS) else nullcontext
        check: _Check = RequestChecks.check
        if handler.request_streaming:
            check = RequestChecks.check_each
        if handler.response_streaming:
            answer = self._wrap_stream(method, behaviour, check, bounds)
        else:
            answer = self._wrap_unary(method, behaviour, check, bounds)
        parse = handler.request_deserializer
        return make(
            answer,
            request_deserializer=None if parse is None else make_deserializer(parse),
            # The responses of a BatchStream are serialized already.
            response_serializer=None if method in BATCH_FIELDS else handler.response_serializer,
        )

    def _wrap_unary(
        self,
        method: str,
        behaviour: Callable[..., Any],
        check: _Check,
        bounds: Callable[[], AbstractAsyncContextManager[None]],
    ) -> Callable[..., Any]:
        async def answer(request: object, context: _Context) -> object:
            async with self._serve_call(method, context, is_stream=False) as checks, bounds():
                return await behaviour(check(checks, request), context)

        return answer

    def _wrap_stream(
        self,
        method: str,
        behaviour: Callable[..., Any],
        check: _Check,
        bounds: Callable[[], AbstractAsyncContextManager[None]],
    ) -> Callable[..., Any]:
        # A coroutine that writes and not a generator. A canceled call would leave a generator, its
        # span and the handler's resources to the garbage collector.
        async def answer(request: object, context: _Context) -> None:
            async with self._serve_call(method, context, is_stream=True) as checks:
                checked = check(checks, request)
                if bounds is not nullcontext or _is_revocable(caller.get(None)):
                    # Cancelled in its first write, a stream could not be ended any more: grpc
                    # refuses a status whose initial metadata is being sent already.
                    await context.send_initial_metadata(())
                async with bounds():
                    await _write_all(method, context, behaviour(checked, context))

        return answer

    @asynccontextmanager
    async def _serve_call(
        self, method: str, context: _Context, *, is_stream: bool
    ) -> AsyncIterator[RequestChecks]:
        """Check a call and trace it, and end it with our error if its block raises.

        Yields the checks of its requests. Their errors are errors of the block.
        """
        carrier = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if key in _TRACE_KEYS and isinstance(value, str)
        }
        call = ServerCall(method, carrier, remaining_s=_remaining_s(context), is_stream=is_stream)
        try:
            with call.activate():
                checks = await self._authorize(method, context)
                async with self._until_revoked():
                    yield checks
        except BaseException as exception:
            error = call.fail(
                _convert_unimplemented(exception, method, context),
                code=_status_name(exception, context),
            )
            if isinstance(error, TrunklineError):
                await abort(context, error)
            if error is exception:
                raise
            raise error from exception
        call.succeed()

    def _until_revoked(self) -> AbstractAsyncContextManager[None]:
        identity = caller.get(None)
        return self._bound_joined(identity) if _is_revocable(identity) else nullcontext()

    @asynccontextmanager
    async def _bound_joined(self, identity: Identity) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(None) as scope:
                self._joined[scope] = identity
                try:
                    yield
                finally:
                    del self._joined[scope]
        except TimeoutError:
            if not scope.expired():
                raise
            raise UnauthenticatedError(f"{identity} is revoked") from None

    @asynccontextmanager
    async def _until_shutdown(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(None) as scope:
                self._endless.add(scope)
                try:
                    yield
                finally:
                    self._endless.discard(scope)
        except TimeoutError:
            if not scope.expired():
                raise
            raise PeerUnavailableError("this host", "it is shutting down") from None


def _is_revocable(identity: Identity | None) -> TypeGuard[Identity]:
    """Return whether a process can be revoked, as all processes but those of this user."""
    return identity is not None and bool(identity.instance)


# Keyed by two flags: the request is a stream, the response is a stream.
_MAKE_HANDLER: dict[tuple[bool, bool], Callable[..., _Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


async def _write_all(method: str, context: _Context, responses: Any) -> None:  # noqa: ANN401
    """Write the responses of a handler, which are one of three.

    An async generator yields them. A coroutine has written them itself, or returns a BatchStream.
    """
    if not hasattr(responses, "__aiter__"):
        stream = await responses
        if not isinstance(stream, BatchStream):
            return
        responses = stream.encode(BATCH_FIELDS[method])
    async with aclosing(responses):
        async for response in responses:
            if not await _write(context, response):
                return


async def _write(context: _Context, response: object) -> bool:
    """Write a response; return False if the reader has left, which grpc reports only here."""
    try:
        await context.write(response)
    except grpc.aio.InternalError:
        return False
    return True


def _refuse(method: str) -> Callable[..., Any]:
    async def refuse(_request: object, _context: _Context) -> None:
        raise UnsupportedOperationError(method, "this host doesn't serve it")

    return refuse


def _convert_unimplemented(
    exception: BaseException, method: str, context: _Context
) -> BaseException:
    """Convert the error of a method that a servicer does not implement."""
    if isinstance(exception, NotImplementedError) and _code_name(context.code()) == "UNIMPLEMENTED":
        return UnsupportedOperationError(method, "this host doesn't serve it")
    return exception


def _status_name(exception: BaseException, context: _Context) -> str:
    """Return the status name of an exception that is no TrunklineError."""
    if isinstance(exception, grpc.aio.AbortError):
        # Third-party handlers abort calls directly.
        return _code_name(context.code())
    return "DEADLINE_EXCEEDED" if _remaining_s(context) == 0 else "CANCELLED"


def _remaining_s(context: _Context) -> float | None:
    remaining_s: float | None = context.time_remaining()
    return None if remaining_s is None else max(0.0, remaining_s)


def _code_name(code: grpc.StatusCode | int | None) -> str:
    if isinstance(code, grpc.StatusCode):
        return code.name
    name: str = code_pb2.Code.Name(code or 0)
    return name
