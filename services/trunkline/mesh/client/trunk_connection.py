"""One connection of a trunk, as its client sees it, and the calls on it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.mesh.client.status import from_trunk_end, hides_status, translate_errors
from trunkline.mesh.trunk_wire.methods import CONNECT_METHOD
from trunkline.mesh.trunk_wire.statements import StatementNumbers
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading
from trunkline.v1 import trunk_service_pb2

logger = logging.getLogger(__name__)

# The receive window of one stream. A single batch may be larger.
WINDOW_BYTES: Final = 32 * 1024
# The limit of one message to the peer, unless a single call is larger.
_MESSAGE_BYTES: Final = 256 * 1024
# A silent peer is pinged after this part of `ping_s`. The rest is split into this many checks.
_QUIET_PART: Final = 2 / 3
_CHECKS: Final = 3
# A peer that refuses a connection answers within this time.
_REFUSAL_S: Final = 1.0

BatchSink: TypeAlias = Callable[[list[bytes]], int]
"""Handles some of the first batches at once and returns their number. Must not raise."""
# Responses are raw bytes: gRPC would report unparsable ones as the end of the stream.
ConnectCall: TypeAlias = grpc.aio.StreamStreamCall[trunk_service_pb2.ConnectRequest, bytes]
ConnectCallable: TypeAlias = Callable[[], ConnectCall]


class TrunkUnaryCall:
    """A unary call on a trunk."""

    def __init__(self, peer: str, *, is_patient: bool = False) -> None:
        """`is_patient`: gRPC's own pings detect soon enough that the peer has failed."""
        self.is_patient = is_patient
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._peer = peer

    def receive(self, frame: trunk_service_pb2.TrunkFrame) -> None:
        """Set the response from the call's last frame."""
        if not frame.HasField("end") or self.response.done():
            return
        if frame.end.code:
            self.response.set_exception(from_trunk_end(frame.end, peer=self._peer))
        else:
            self.response.set_result(frame.response)

    def fail(self, error: TrunklineError) -> None:
        """End the call with an error."""
        if not self.response.done():
            self.response.set_exception(error)


class TrunkStreamCall:
    """A streaming call on a trunk. Iterating yields lists of batches, in order.

    A reader that asks for more returns the credit of what it has read, so at most one window of
    batches waits for a slow reader.
    """

    is_patient: ClassVar[bool] = False

    __slots__ = (
        "_batches",
        "_connection",
        "_error",
        "_first_response",
        "_latest",
        "_on_end",
        "_unreturned_bytes",
        "_waiter",
        "call_id",
        "is_over",
        "sink",
    )

    def __init__(
        self, connection: "TrunkClientConnection", on_end: Callable[[str], None] | None = None
    ) -> None:
        """`cancel` calls `on_end` with the name of the status code."""
        self.call_id: int = 0
        self.is_over: bool = False
        """True once the peer or the trunk has ended the call."""
        self.sink: BatchSink | None = None
        """Takes batches as they arrive while the reader waits; the reader gets the rest. Waking the
        reader costs more than handling most batches."""
        self._connection = connection
        self._on_end = on_end
        self._first_response: bytes | None = None
        self._batches: list[bytes] = []
        self._latest = b""
        self._unreturned_bytes = 0
        self._error: TrunklineError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def code(self) -> str:
        """The status code's name; CANCELLED while the call is open."""
        if not self.is_over:
            return "CANCELLED"
        return "OK" if self._error is None else self._error.code.value

    def receive(self, frame: trunk_service_pb2.TrunkFrame) -> None:
        """Take a frame of the call."""
        if frame.batches:
            self._batches.extend(frame.batches)
            if self.sink is not None and self._is_awaited:
                if taken := self.sink(self._batches):
                    self._note_read(self._batches[:taken])
                    del self._batches[:taken]
                    self._return_credit()
                if not (self._batches or frame.HasField("end")):
                    return
        if frame.HasField("response"):
            self._first_response = frame.response
        if frame.HasField("end"):
            self.is_over = True
            if frame.end.code:
                self._error = from_trunk_end(frame.end, peer=self._connection.peer)
            self._connection.remove_call(self.call_id)
        self._wake()

    def fail(self, error: TrunklineError) -> None:
        """End the call with an error, after the batches that have arrived."""
        self.is_over = True
        self._error = error
        self._wake()

    async def read_first(self) -> bytes:
        """Wait for the first response, after which the stream is open; release it to the caller.

        The response is not stored, because it may hold a large snapshot.

        Raises:
            TrunklineError: the peer's error.
        """
        while self._first_response is None:
            if self.is_over:
                peer = self._connection.peer
                raise self._error or PeerUnavailableError(peer, "it sent no response")
            await self._wait()
        response, self._first_response = self._first_response, b""
        return response

    def take_latest(self) -> bytes:
        """Return the last batch that the reader or the sink got since the previous call, or b""."""
        latest, self._latest = self._latest, b""
        return latest

    def cancel(self) -> None:
        """End the call. A second call has no effect."""
        self._connection.cancel_call(self.call_id)
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self.code)

    def __aiter__(self) -> "TrunkStreamCall":
        return self

    async def __anext__(self) -> list[bytes]:
        self._return_credit()
        while not self._batches:
            if self.is_over:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait()
        batches, self._batches = self._batches, []
        self._note_read(batches)
        return batches

    def _note_read(self, batches: list[bytes]) -> None:
        self._latest = batches[-1]
        self._unreturned_bytes += sum(map(len, batches))

    def _return_credit(self) -> None:
        size_bytes = self._unreturned_bytes
        if size_bytes * 2 >= WINDOW_BYTES and not self.is_over:
            self._unreturned_bytes = 0
            self._connection.grant_credit(self.call_id, size_bytes)

    @property
    def _is_awaited(self) -> bool:
        """True while the reader waits and there is no batch for it."""
        return self._waiter is not None and not self._waiter.done()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Call(Protocol):
    @property
    def is_patient(self) -> bool: ...

    def receive(self, frame: trunk_service_pb2.TrunkFrame) -> None: ...

    def fail(self, error: TrunklineError) -> None: ...


class TrunkClientConnection:
    """A connection to one peer. All calls on it end with it."""

    def __init__(
        self,
        connect: ConnectCallable,
        *,
        peer: str,
        ping_s: float,
        connect_s: float,
        on_message: Callable[[], None],
    ) -> None:
        """`on_message` is called for each message from the peer."""
        self.peer = peer
        self.is_unsupported: bool = False
        """True if the peer does not serve trunks."""
        self.has_connected: bool = False
        self.failure: TrunklineError | None = None
        """The reason why the connection is over."""
        self.idle: asyncio.Event = asyncio.Event()
        """Set while no call is open."""
        self.idle.set()
        self._connect = connect
        self._on_message = on_message
        self._calls: dict[int, _Call] = {}
        instruments.TRUNKS.watch(self, TrunkClientConnection._count_open)
        instruments.TRUNK_CALLS.watch(self, TrunkClientConnection._count_calls)
        self._last_id = 0
        self._task: asyncio.Task[None] | None = None
        # The next message to the peer: new calls by id, credits and cancellations, and a ping.
        self._new_calls: dict[int, trunk_service_pb2.TrunkCall] = {}
        self._next = trunk_service_pb2.ConnectRequest()
        self._must_ping = False
        self._statements = StatementNumbers()
        self._has_work = asyncio.Event()
        self._quiet_s = ping_s * _QUIET_PART
        self._check_s = (ping_s - self._quiet_s) / _CHECKS
        self._checks_to_connect = max(_CHECKS, round((connect_s - self._quiet_s) / self._check_s))
        self._last_message_s = 0.0
        # Checks without an answer since the ping.
        self._checks = 0
        self._timer: asyncio.TimerHandle | None = None

    def _count_open(self) -> Sequence[Reading]:
        return [(("client",), 1)] if self.failure is None else ()

    def _count_calls(self) -> Sequence[Reading]:
        return [(("client",), len(self._calls))] if self.failure is None else ()

    async def run(self) -> None:
        """Serve the calls until the connection ends; never raises."""
        if self.failure is not None:
            return
        self._task = asyncio.current_task()
        error: TrunklineError = PeerUnavailableError(self.peer, "its channel is closed")
        try:
            reason = await self._exchange()
            if hides_status(reason) and not self.has_connected:
                reason = await self._read_refusal(reason)
            if hides_status(reason):
                reason = PeerUnavailableError(self.peer, "it ended the stream of all calls")
            # Not before: until here, a cancellation closes the connection.
            error = reason
        except TrunklineError as refusal:
            error = refusal
        except Exception:
            # Our own defect. The peer may be healthy.
            logger.exception("trunk.failed", extra={"peer": self.peer})
            error = PeerUnavailableError(self.peer, "the trunk to it failed; the log has the cause")
        finally:
            self._task = None
            self.close(error)

    def close(self, error: TrunklineError) -> None:
        """End the connection, and every open call with `error`. A second call has no effect."""
        if self.failure is None:
            self.failure = error
            if self._timer is not None:
                self._timer.cancel()
            calls, self._calls = self._calls, {}
            self.idle.set()
            for call in calls.values():
                call.fail(error)
        if self._task is not None:
            self._task.cancel()

    def start_call(self, call: _Call, request: trunk_service_pb2.TrunkCall) -> int:
        """Send a call to the peer; return its id."""
        self._last_id += 1
        request.call_id = self._last_id
        self._calls[self._last_id] = call
        self._new_calls[self._last_id] = request
        self._has_work.set()
        self.idle.clear()
        if self._timer is None and not call.is_patient:
            self._note_message()
            self._schedule_check(self._quiet_s)
        return self._last_id

    def remove_call(self, call_id: int) -> None:
        """Remove a call that has ended."""
        self._calls.pop(call_id, None)
        if not self._calls:
            self.idle.set()

    def cancel_call(self, call_id: int) -> None:
        """Cancel a call at the peer, unless it is over."""
        if self._calls.get(call_id) is None:
            return
        self.remove_call(call_id)
        if self._new_calls.pop(call_id, None) is None:
            self._next.leaves.append(call_id)
            self._has_work.set()

    def grant_credit(self, call_id: int, size_bytes: int) -> None:
        """Let the peer send this many more bytes of a stream."""
        self._next.credits.add(call_id=call_id, bytes=size_bytes)
        self._has_work.set()

    async def _exchange(self) -> TrunklineError:
        """Exchange messages with the peer until the stream ends; return the reason."""
        stream = self._open_stream()
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(stream))
                reason = await self._read(stream)
                writer.cancel()
            return reason
        finally:
            stream.cancel()

    def _open_stream(self) -> ConnectCall:
        with translate_errors(self.peer):
            return self._connect()

    async def _read_refusal(self, reason: TrunklineError) -> TrunklineError:
        """Return the status with which the peer refuses a stream, or `reason` if it accepts one.

        Nothing is written to this stream, so gRPC reports the peer's own status.
        """
        stream = self._open_stream()
        try:
            async with asyncio.timeout(_REFUSAL_S):
                return await self._read(stream)
        except TimeoutError:
            return reason
        finally:
            stream.cancel()

    async def _read(self, stream: ConnectCall) -> TrunklineError:
        """Pass frames to their calls until the stream ends; return the reason."""
        calls = self._calls
        try:
            with translate_errors(self.peer):
                while isinstance(message := await stream.read(), bytes):
                    response = trunk_service_pb2.ConnectResponse.FromString(message)
                    self._note_message()
                    self.has_connected = True
                    self._on_message()
                    for frame in response.frames:
                        call = calls.get(frame.call_id)
                        if call is not None:
                            call.receive(frame)
            return PeerUnavailableError(self.peer, "it ended the stream of all calls")
        except DecodeError:
            return PeerProtocolError(self.peer, "it sent a message that can't be read")
        except PeerUnavailableError as error:
            # The error must name the peer by our name for it, not by its own.
            return PeerUnavailableError(self.peer, error.problem)
        except UnsupportedOperationError:
            self.is_unsupported = True
            return UnsupportedOperationError(CONNECT_METHOD, "the peer doesn't serve it")
        except TrunklineError as error:
            return error

    async def _write(self, stream: ConnectCall) -> None:
        """Send pending calls, credits, cancellations and pings in as few messages as possible."""
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while (request := self._next_request()) is not None:
                    await stream.write(request)
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The reader gets the reason.
            return

    def _next_request(self) -> trunk_service_pb2.ConnectRequest | None:
        request, self._next = self._next, trunk_service_pb2.ConnectRequest()
        size = 0
        while self._new_calls:
            call_id, call = next(iter(self._new_calls.items()))
            size += len(call.request)
            if request.calls and size > _MESSAGE_BYTES:
                return request
            del self._new_calls[call_id]
            # Not before: a call that is canceled until now is never sent.
            self._statements.number(call)
            request.calls.append(call)
        if request.calls or request.credits or request.leaves:
            return request
        if self._must_ping:
            self._must_ping = False
            return request
        return None

    def _note_message(self) -> None:
        self._last_message_s = asyncio.get_running_loop().time()
        self._checks = 0

    def _schedule_check(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._check)

    def _check(self) -> None:
        """Ping a silent peer, and close the connection if it stays silent.

        The number of checks decides, not the time: a process that was stopped or blocked makes only
        one check when it continues, so it does not blame its peer for its own pause.
        """
        self._timer = None
        if all(call.is_patient for call in self._calls.values()):
            return
        if not self._checks:
            remaining_s = self._last_message_s + self._quiet_s - asyncio.get_running_loop().time()
            if remaining_s > 0:
                self._schedule_check(remaining_s)
                return
            self._must_ping = True
            self._has_work.set()
        limit = _CHECKS if self.has_connected else self._checks_to_connect
        if self._checks == limit:
            silent_s = self._quiet_s + limit * self._check_s
            self.close(PeerUnavailableError(self.peer, f"it has been silent for {silent_s:g} s"))
            return
        self._checks += 1
        self._schedule_check(self._check_s)
