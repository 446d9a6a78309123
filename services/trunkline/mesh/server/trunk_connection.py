"""One connection of a trunk, as its server sees it: its calls, and the task that sends for them."""

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import grpc

from trunkline.errors import (
    InvalidArgumentError,
    OverloadedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from trunkline.mesh.server.authorization import MeshAuthorizer, caller
from trunkline.mesh.server.batch_stream import BatchSource, BatchStream
from trunkline.mesh.server.calls import ServerCall
from trunkline.mesh.server.requests import UNREADABLE, check_duration, unreadable_request
from trunkline.mesh.server.status import to_trunk_end
from trunkline.mesh.server.trunk_method import TrunkContext, TrunkMethod
from trunkline.mesh.trunk_wire.methods import CONNECT_METHOD
from trunkline.mesh.trunk_wire.statements import NumberedStatements, check_statement
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading
from trunkline.v1 import trunk_service_pb2

# Limits of one message, and of one stream's part of a message.
MAX_MESSAGE_BYTES: Final = 256 * 1024
STREAM_QUANTUM_BYTES: Final = 16 * 1024
# Open calls of one peer. This bounds what a peer that does not read makes the host hold.
MAX_OPEN_CALLS: Final = 10_000
# With more unsent responses than this, no further request is read.
MAX_UNSENT_BYTES: Final = 1024 * 1024
# One message may hold millions of calls. Other peers are served between so many.
_ITEMS_AT_ONCE: Final = 100
# Slightly below the largest message that a client accepts.
MAX_RESPONSE_BYTES: Final = 63 * 1024 * 1024

_THIS_HOST: Final = "this host"

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class _UnsentFrame(NamedTuple):
    """A unary response, a first response or an end that waits to be sent."""

    frame: trunk_service_pb2.TrunkFrame
    size_bytes: int
    on_sent: Callable[[], None] | None = None


class _Stream:
    """An open stream: its source, and the credit of its reader.

    It has a task only while its next batches are read from the store.
    """

    __slots__ = ("call", "call_id", "credit_bytes", "read_task", "source", "timer")

    def __init__(
        self, frame: trunk_service_pb2.TrunkCall, source: BatchSource, call: ServerCall
    ) -> None:
        self.call_id = frame.call_id
        self.credit_bytes = frame.credit_bytes
        self.source = source
        self.call = call
        self.timer: asyncio.TimerHandle | None = None
        self.read_task: asyncio.Task[tuple[Sequence[bytes], Exception | None]] | None = None

    def take(self, group: asyncio.TaskGroup, on_read: Callable[[], None]) -> Sequence[bytes] | None:
        """Return the next batches, or None while they are read. `on_read` follows the reading.

        Other streams are sent meanwhile, so a reader that is behind does not delay them.
        """
        if self.read_task is None:
            ready = self.source.take_ready(STREAM_QUANTUM_BYTES)
            if ready is None:
                self.read_task = group.create_task(self._read())
                self.read_task.add_done_callback(lambda _: on_read())
            return ready
        if not self.read_task.done():
            return None
        batches, error = self.read_task.result()
        self.read_task = None
        if error is not None:
            raise error
        return batches

    async def _read(self) -> tuple[Sequence[bytes], Exception | None]:
        """Read the next batches, or return the error."""
        try:
            return await self.source.take(STREAM_QUANTUM_BYTES), None
        except Exception as error:  # noqa: BLE001  every error is the caller's answer
            return (), error

    def close(self) -> None:
        self.source.close()
        if self.read_task is not None:
            self.read_task.cancel()
        if self.timer is not None:
            self.timer.cancel()


class TrunkServerConnection:
    """Serves the calls of one peer."""

    def __init__(
        self,
        methods: Mapping[str, TrunkMethod],
        context: _Context,
        group: asyncio.TaskGroup,
        authorizer: MeshAuthorizer,
    ) -> None:
        """Calls run in `group`. They have the identity of the caller that connects.

        `authorizer` checks each call.
        """
        self._authorizer = authorizer
        self._caller = caller.get()
        self._peer = context.peer()
        self._methods = methods
        self._context = context
        self._group = group
        self._calls: dict[int, asyncio.Task[None] | _Stream] = {}
        self._is_open = True
        instruments.TRUNKS.watch(self, TrunkServerConnection._count_open)
        instruments.TRUNK_CALLS.watch(self, TrunkServerConnection._count_calls)
        self._statements = NumberedStatements()
        # Streams that may have batches, in the order of their turns.
        self._ready: dict[_Stream, None] = {}
        self._unsent: deque[_UnsentFrame] = deque()
        self._unsent_bytes = 0
        # Callbacks for when the next message is sent.
        self._on_sent: list[Callable[[], None]] = []
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._has_work = asyncio.Event()
        self._is_pinged = False
        self._is_draining = False

    async def serve(self) -> None:
        """Serve until the peer has left, or after `drain` until every call has ended."""
        reader = self._group.create_task(self._read())
        try:
            # If the peer is gone, gRPC cancels this call, or will soon.
            with contextlib.suppress(grpc.aio.BaseError):
                await self._send()
        finally:
            self._is_open = False
            reader.cancel()

    def drain(self) -> None:
        """Refuse new calls, and end after the last open one."""
        self._is_draining = True
        self._has_work.set()

    def end_if_revoked(self) -> None:
        """End all calls, and the trunk, if the peer is no longer accepted."""
        try:
            self._authorizer.check(self._caller, CONNECT_METHOD)
        except UnauthenticatedError:
            self.close()
            self.drain()

    def close(self) -> None:
        """Cancel all calls."""
        for call_id in tuple(self._calls):
            self._cancel(call_id)

    def _count_open(self) -> Sequence[Reading]:
        return [(("server",), 1)] if self._is_open else ()

    def _count_calls(self) -> Sequence[Reading]:
        return [(("server",), len(self._calls))] if self._is_open else ()

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.BaseError):
            while True:
                request = await self._context.read()
                if request is UNREADABLE:
                    raise unreadable_request()
                if not isinstance(request, trunk_service_pb2.ConnectRequest):
                    break
                await self._dispatch(request)
                await self._has_room.wait()
        # The peer has left and reads no further response.
        self.close()
        self.drain()

    async def _dispatch(self, request: trunk_service_pb2.ConnectRequest) -> None:
        for index, call in enumerate(request.calls, 1):
            self._statements.fill_in(call)
            # A second call with the same id is ignored: its answer would end the first.
            if call.call_id not in self._calls:
                # A call must not inherit the context variables of the connection.
                self._calls[call.call_id] = self._group.create_task(
                    self._answer(call), context=contextvars.Context()
                )
            if not index % _ITEMS_AT_ONCE:
                await asyncio.sleep(0)
                await self._has_room.wait()
        for index, credit in enumerate(request.credits, 1):
            stream = self._calls.get(credit.call_id)
            if isinstance(stream, _Stream):
                stream.credit_bytes += credit.bytes
                self._wake(stream)
            if not index % _ITEMS_AT_ONCE:
                await asyncio.sleep(0)
        for index, call_id in enumerate(request.leaves, 1):
            self._cancel(call_id)
            if not index % _ITEMS_AT_ONCE:
                await asyncio.sleep(0)
        if not (request.calls or request.credits or request.leaves):
            self._is_pinged = True
            self._has_work.set()

    def _cancel(self, call_id: int) -> None:
        call = self._calls.pop(call_id, None)
        if isinstance(call, _Stream):
            self._ready.pop(call, None)
            call.close()
            call.call.fail(asyncio.CancelledError(), code="CANCELLED")
        elif call is not None:
            call.cancel()

    async def _answer(self, request: trunk_service_pb2.TrunkCall) -> None:
        """Answer a unary call, or open a stream."""
        timeout_s = None
        if request.HasField("timeout"):
            timeout_s = request.timeout.seconds + request.timeout.nanos / 1e9
        method = self._methods.get(request.method)
        call = ServerCall(
            request.method,
            _read_carrier(request),
            remaining_s=timeout_s,
            is_stream=method is not None and method.is_stream,
        )
        frame = trunk_service_pb2.TrunkFrame(call_id=request.call_id)
        deadline = asyncio.timeout(timeout_s)
        try:
            with call.activate():
                async with deadline:
                    self._check_room()
                    check_statement(request)
                    checks = await self._authorizer.enter_call(
                        self._caller, request.method, request.user_statement, self._peer
                    )
                    check_duration(request.timeout, "timeout")
                    if method is None:
                        raise UnsupportedOperationError(
                            request.method, "this host doesn't serve it"
                        )
                    # Not before: only a process that may call the method can make this host parse.
                    checked = checks.check(method.parse(request.request))
                    context = TrunkContext(self._peer)
                    answer = await method.call(checked, context)
                    if not method.is_stream:
                        answer = BatchStream(answer, on_sent=context.on_done)
                    response = answer.first_response.SerializeToString()
                    _check_size(response)
        except asyncio.CancelledError as canceled:
            call.fail(canceled, code="CANCELLED")
            raise
        except Exception as exception:  # noqa: BLE001  every error is the caller's answer
            error = _timeout_error() if deadline.expired() else exception
            self._end(request.call_id, call, error, frame)
            return
        frame.response = response
        if answer.source is None:
            self._end(request.call_id, call, None, frame, on_sent=answer.on_sent)
            return
        self._enqueue(frame, on_sent=answer.on_sent)
        self._start(_Stream(request, answer.source, call), timeout_s)

    def _check_room(self) -> None:
        if self._is_draining:
            raise PeerUnavailableError(_THIS_HOST, "it is shutting down; try again elsewhere")
        if len(self._calls) > MAX_OPEN_CALLS:
            raise OverloadedError(_THIS_HOST, "1")

    def _start(self, stream: _Stream, timeout_s: float | None) -> None:
        self._calls[stream.call_id] = stream
        if timeout_s is not None:
            loop = asyncio.get_running_loop()
            stream.timer = loop.call_later(timeout_s, self._expire, stream)
        stream.source.on_ready(partial(self._wake, stream))
        self._wake(stream)

    def _expire(self, stream: _Stream) -> None:
        frame = trunk_service_pb2.TrunkFrame(call_id=stream.call_id)
        self._ready.pop(stream, None)
        stream.close()
        self._end(stream.call_id, stream.call, _timeout_error(), frame)

    def _end(
        self,
        call_id: int,
        call: ServerCall,
        error: Exception | None,
        frame: trunk_service_pb2.TrunkFrame,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        """Send a call's last frame."""
        self._calls.pop(call_id, None)
        _set_end(frame, call, error)
        self._enqueue(frame, on_sent=on_sent)

    def _enqueue(
        self, frame: trunk_service_pb2.TrunkFrame, *, on_sent: Callable[[], None] | None = None
    ) -> None:
        size_bytes = frame.ByteSize()
        self._unsent.append(_UnsentFrame(frame, size_bytes, on_sent))
        self._unsent_bytes += size_bytes
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._has_room.clear()
        self._has_work.set()

    def _wake(self, stream: _Stream) -> None:
        # A stream that has ended may have been reading.
        if stream.credit_bytes > 0 and self._calls.get(stream.call_id) is stream:
            self._ready[stream] = None
            self._has_work.set()

    async def _send(self) -> None:
        """Send unsent frames and ready batches, as many as fit into each message."""
        while True:
            if not (self._unsent or self._ready or self._is_pinged):
                if self._is_draining and not self._calls:
                    return
                self._has_work.clear()
                await self._has_work.wait()
                continue
            await self._context.write(self._next_response())
            if self._on_sent:
                callbacks, self._on_sent = self._on_sent, []
                for callback in callbacks:
                    callback()

    def _next_response(self) -> trunk_service_pb2.ConnectResponse:
        """Return the next message: at most MAX_MESSAGE_BYTES, unless a single frame is larger."""
        self._is_pinged = False
        response = trunk_service_pb2.ConnectResponse()
        size = 0
        while self._unsent:
            next_frame = self._unsent[0]
            if size and size + next_frame.size_bytes > MAX_MESSAGE_BYTES:
                return response
            self._unsent.popleft()
            self._unsent_bytes -= next_frame.size_bytes
            response.frames.append(next_frame.frame)
            size += next_frame.size_bytes
            if next_frame.on_sent is not None:
                self._on_sent.append(next_frame.on_sent)
        self._has_room.set()
        for _ in range(len(self._ready)):
            if size + STREAM_QUANTUM_BYTES > MAX_MESSAGE_BYTES:
                break
            stream = next(iter(self._ready))
            del self._ready[stream]
            # Filled in place, because adding a filled frame would copy it.
            frame = response.frames.add(call_id=stream.call_id)
            stream_bytes = self._fill(frame, stream)
            if stream_bytes > STREAM_QUANTUM_BYTES and size:
                # A single large batch travels alone in the next message.
                self._unsent.append(_UnsentFrame(response.frames.pop(), stream_bytes))
                self._unsent_bytes += stream_bytes
                break
            if frame.batches or frame.HasField("end"):
                size += stream_bytes
            else:
                del response.frames[-1]
        return response

    def _fill(self, frame: trunk_service_pb2.TrunkFrame, stream: _Stream) -> int:
        """Move a stream's next batches into a frame; return their size."""
        source = stream.source
        failure: Exception | None = None
        size_bytes = 0
        was_read = stream.read_task is not None
        try:
            batches = stream.take(self._group, partial(self._wake, stream))
        except Exception as error:  # noqa: BLE001  every error is the caller's answer
            failure = error
        else:
            if batches is None:
                return 0
            size_bytes = sum(map(len, batches))
            frame.batches.extend(batches)
            stream.credit_bytes -= size_bytes
        if failure is not None or source.is_over:
            stream.close()
            self._calls.pop(stream.call_id, None)
            _set_end(frame, stream.call, failure)
        elif stream.credit_bytes > 0 and (was_read or not source.is_at_head):
            # More events may have come since a reading of the store has ended.
            self._ready[stream] = None
        return size_bytes


def _set_end(
    frame: trunk_service_pb2.TrunkFrame, call: ServerCall, cause: Exception | None
) -> None:
    """Record the end of a call, and make `frame` its last frame."""
    if cause is None:
        call.succeed()
        frame.end.SetInParent()
        return
    frame.ClearField("response")
    error = call.fail(cause, code="INTERNAL")
    if isinstance(error, TrunklineError):
        frame.end.CopyFrom(to_trunk_end(error))
    if isinstance(error, PeerTimeoutError) and error.peer == _THIS_HOST:
        # The caller must name this host by its own name for it.
        frame.end.ClearField("reason")


def _read_carrier(request: trunk_service_pb2.TrunkCall) -> dict[str, str]:
    carrier = {"traceparent": request.traceparent} if request.traceparent else {}
    if request.tracestate:
        carrier["tracestate"] = request.tracestate
    return carrier


def _check_size(response: bytes) -> None:
    if len(response) > MAX_RESPONSE_BYTES:
        raise InvalidArgumentError("request", "its answer is too large for one message")


def _timeout_error() -> PeerTimeoutError:
    return PeerTimeoutError(_THIS_HOST, "the call's deadline is over")
