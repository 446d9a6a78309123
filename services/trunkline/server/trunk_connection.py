"""One trunk from the side that serves: its calls, and the one task that sends what is ready."""

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc

from trunkline.errors import (
    InvalidArgumentError,
    OverloadedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.server.calls import ServerCall
from trunkline.server.handlers import StreamOpener
from trunkline.server.status import to_trunk_end
from trunkline.tasks.watch import TaskWatch
from trunkline.v1 import trunk_service_pb2

# Of one message, and of one watch in it.
MAX_MESSAGE_BYTES: Final = 256 * 1024
STREAM_QUANTUM_BYTES: Final = 16 * 1024
# Open calls of one peer. With it, what a peer that doesn't read makes us keep is bounded.
MAX_OPEN_CALLS: Final = 10_000
# Unsent answers beyond this stop the reading of further requests.
MAX_UNSENT_BYTES: Final = 1024 * 1024
# A peer takes no message that is larger; nearly.
MAX_RESPONSE_BYTES: Final = 63 * 1024 * 1024

_HERE: Final = "this host"

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class TrunkMethods:
    """What can be called, by full name: serialised requests in, serialised responses out."""

    unary: dict[str, Callable[[bytes], Awaitable[bytes]]]
    streams: dict[str, StreamOpener]


class _Watching:
    """A stream that is open: the cursor, and how much its reader can take. No task, no queue."""

    __slots__ = ("_wake", "call_id", "credit_bytes", "served", "timer", "watch")

    def __init__(
        self,
        call: trunk_service_pb2.TrunkCall,
        watch: TaskWatch,
        served: ServerCall,
        wake: Callable[["_Watching"], None],
    ) -> None:
        self.call_id = call.call_id
        self.credit_bytes = call.credit_bytes
        self.watch = watch
        self.served = served
        self.timer: asyncio.TimerHandle | None = None
        self._wake = wake

    def __call__(self) -> None:
        """The journal's news."""
        self._wake(self)

    def close(self) -> None:
        self.watch.close()
        if self.timer is not None:
            self.timer.cancel()


class TrunkServerConnection:
    """The calls of one peer, and what is ready for it."""

    def __init__(self, methods: TrunkMethods, context: _Context, group: asyncio.TaskGroup) -> None:
        """Calls run in the group."""
        self._methods = methods
        self._context = context
        self._group = group
        self._calls: dict[int, asyncio.Task[None] | _Watching] = {}
        # Watches that may have something, in the order of their turns.
        self._ready: dict[_Watching, None] = {}
        # Answers, beginnings and ends.
        self._unsent: deque[tuple[int, trunk_service_pb2.TrunkFrame]] = deque()
        self._unsent_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._news = asyncio.Event()
        self._is_pinged = False
        self._is_draining = False

    async def serve(self) -> None:
        """Serve until the peer has left, or everything is answered after `drain`."""
        reading = self._group.create_task(self._read())
        try:
            # The peer is gone: gRPC cancels this call, if it hasn't yet.
            with contextlib.suppress(grpc.aio.BaseError):
                await self._send()
        finally:
            reading.cancel()

    def drain(self) -> None:
        """Refuse further calls, and end behind the last one."""
        self._is_draining = True
        self._news.set()

    def close(self) -> None:
        """Leave all calls."""
        for call_id in tuple(self._calls):
            self._leave(call_id)

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.BaseError):
            while True:
                request = await self._context.read()
                if not isinstance(request, trunk_service_pb2.ConnectRequest):
                    break
                self._take(request)
                await self._has_room.wait()
        # Nothing more is asked, and nobody reads what is left.
        self.close()
        self.drain()

    def _take(self, request: trunk_service_pb2.ConnectRequest) -> None:
        for call in request.calls:
            self._begin(call)
        for credit in request.credits:
            watching = self._calls.get(credit.call_id)
            if isinstance(watching, _Watching):
                watching.credit_bytes += credit.bytes
                self._wake(watching)
        for call_id in request.leaves:
            self._leave(call_id)
        if not (request.calls or request.credits or request.leaves):
            self._is_pinged = True
            self._news.set()

    def _begin(self, call: trunk_service_pb2.TrunkCall) -> None:
        if call.call_id in self._calls:
            # To answer it would end the other one.
            return
        # Context variables of the trunk are nothing to its calls.
        self._calls[call.call_id] = self._group.create_task(
            self._answer(call), context=contextvars.Context()
        )

    def _leave(self, call_id: int) -> None:
        call = self._calls.pop(call_id, None)
        if isinstance(call, _Watching):
            self._ready.pop(call, None)
            call.close()
            call.served.fail(asyncio.CancelledError(), code="CANCELLED")
        elif call is not None:
            call.cancel()

    async def _answer(self, call: trunk_service_pb2.TrunkCall) -> None:
        """Answer a unary call, or begin a stream."""
        timeout_s = call.timeout.ToNanoseconds() / 1e9 if call.HasField("timeout") else None
        opener = self._methods.streams.get(call.method)
        served = ServerCall(
            call.method, _carrier(call), remaining_s=timeout_s, is_stream=opener is not None
        )
        frame = trunk_service_pb2.TrunkFrame(call_id=call.call_id)
        watch: TaskWatch | None = None
        deadline = asyncio.timeout(timeout_s)
        try:
            with served.activate():
                async with deadline:
                    self._check_room()
                    if opener is not None:
                        opened = await opener(call.request)
                        frame.response, watch = opened.first, opened.watch
                    else:
                        frame.response = await self._unary_of(call)(call.request)
                    _check_size(frame.response)
        except asyncio.CancelledError as left:
            served.fail(left, code="CANCELLED")
            raise
        except Exception as raised:  # noqa: BLE001  whatever it is, the caller is told
            error = _late() if deadline.expired() else raised
            self._end(call.call_id, served, error, frame)
            return
        if watch is None:
            self._end(call.call_id, served, None, frame)
            return
        self._put(frame)
        self._watch(_Watching(call, watch, served, self._wake), timeout_s)

    def _check_room(self) -> None:
        if self._is_draining:
            raise PeerUnavailableError(_HERE, "it is shutting down; try again elsewhere")
        if len(self._calls) > MAX_OPEN_CALLS:
            raise OverloadedError(_HERE, "1")

    def _unary_of(self, call: trunk_service_pb2.TrunkCall) -> Callable[[bytes], Awaitable[bytes]]:
        method = self._methods.unary.get(call.method)
        if method is None:
            raise UnsupportedOperationError(call.method, "this host doesn't serve it")
        return method

    def _watch(self, watching: _Watching, timeout_s: float | None) -> None:
        self._calls[watching.call_id] = watching
        if timeout_s is not None:
            loop = asyncio.get_running_loop()
            watching.timer = loop.call_later(timeout_s, self._expire, watching)
        watching.watch.on_ready(watching)
        self._wake(watching)

    def _expire(self, watching: _Watching) -> None:
        frame = trunk_service_pb2.TrunkFrame(call_id=watching.call_id)
        self._ready.pop(watching, None)
        watching.close()
        self._end(watching.call_id, watching.served, _late(), frame)

    def _end(
        self,
        call_id: int,
        served: ServerCall,
        raised: Exception | None,
        frame: trunk_service_pb2.TrunkFrame,
    ) -> None:
        """Send a call's last frame."""
        self._calls.pop(call_id, None)
        _note_end(served, raised, frame)
        self._put(frame)

    def _put(self, frame: trunk_service_pb2.TrunkFrame) -> None:
        size = frame.ByteSize()
        self._unsent.append((size, frame))
        self._unsent_bytes += size
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._has_room.clear()
        self._news.set()

    def _wake(self, watching: _Watching) -> None:
        if watching.credit_bytes > 0:
            self._ready[watching] = None
            self._news.set()

    async def _send(self) -> None:
        """Send what is ready, one message per turn of the loop."""
        while True:
            if not (self._unsent or self._ready or self._is_pinged):
                if self._is_draining and not self._calls:
                    return
                self._news.clear()
                await self._news.wait()
                continue
            await self._context.write(self._gather())

    def _gather(self) -> trunk_service_pb2.ConnectResponse:
        """Return the next message: at most 256 KB, but for a single frame that is larger."""
        self._is_pinged = False
        response = trunk_service_pb2.ConnectResponse()
        size = 0
        while self._unsent:
            frame_bytes, frame = self._unsent[0]
            if size and size + frame_bytes > MAX_MESSAGE_BYTES:
                return response
            self._unsent.popleft()
            self._unsent_bytes -= frame_bytes
            response.frames.append(frame)
            size += frame_bytes
        self._has_room.set()
        for _ in range(len(self._ready)):
            if size + STREAM_QUANTUM_BYTES > MAX_MESSAGE_BYTES:
                break
            watching = next(iter(self._ready))
            del self._ready[watching]
            # Filled in its place: put there afterwards, it would be copied.
            frame = response.frames.add(call_id=watching.call_id)
            taken_bytes = self._fill(frame, watching)
            if taken_bytes > STREAM_QUANTUM_BYTES and size:
                # A single batch that is large travels in a message of its own, the next.
                self._unsent.append((taken_bytes, response.frames.pop()))
                self._unsent_bytes += taken_bytes
                break
            if frame.batches or frame.HasField("end"):
                size += taken_bytes
            else:
                del response.frames[-1]
        return response

    def _fill(self, frame: trunk_service_pb2.TrunkFrame, watching: _Watching) -> int:
        """Give a watch its turn; return the bytes of batches that it had ready."""
        watch = watching.watch
        raised: Exception | None = None
        taken_bytes = 0
        try:
            batches = watch.take(STREAM_QUANTUM_BYTES)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller is told
            raised = error
        else:
            taken_bytes = sum(map(len, batches))
            frame.batches.extend(batches)
            watching.credit_bytes -= taken_bytes
        if raised is not None or watch.is_over:
            watching.close()
            self._calls.pop(watching.call_id, None)
            _note_end(watching.served, raised, frame)
        elif watching.credit_bytes > 0 and not watch.is_at_head:
            self._ready[watching] = None
        return taken_bytes


def _note_end(
    served: ServerCall, raised: Exception | None, frame: trunk_service_pb2.TrunkFrame
) -> None:
    if raised is None:
        served.succeed()
        frame.end.SetInParent()
        return
    frame.ClearField("response")
    error = served.fail(raised, code="INTERNAL")
    if isinstance(error, TrunklineError):
        frame.end.CopyFrom(to_trunk_end(error))
    if isinstance(error, PeerTimeoutError) and error.peer == _HERE:
        # Only the caller knows what this host is to it.
        frame.end.ClearField("reason")


def _carrier(call: trunk_service_pb2.TrunkCall) -> dict[str, str]:
    carrier = {"traceparent": call.traceparent} if call.traceparent else {}
    if call.tracestate:
        carrier["tracestate"] = call.tracestate
    return carrier


def _check_size(response: bytes) -> None:
    if len(response) > MAX_RESPONSE_BYTES:
        raise InvalidArgumentError("request", "what it asks for is too large for one answer")


def _late() -> PeerTimeoutError:
    return PeerTimeoutError(_HERE, "the call's deadline is over")
