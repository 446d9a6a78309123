"""The calls on a trunk: with one answer, or with a stream of batches."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from trunkline.client.status import from_trunk_end, translate_errors
from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.v1 import trunk_service_pb2

# What a reader's side keeps of one stream; a single batch may be larger.
WINDOW_BYTES: Final = 32 * 1024

# Takes what it can of batches without waiting, and returns how many; must not raise.
BatchSink: TypeAlias = Callable[[list[bytes]], int]


class TrunkUnaryCall:
    """A call with one answer."""

    def __init__(self, peer: str) -> None:
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._peer = peer

    def deliver(self, frame: trunk_service_pb2.TrunkFrame) -> None:
        """Take the answer."""
        if not frame.HasField("end") or self.response.done():
            return
        if frame.end.code:
            self.response.set_exception(from_trunk_end(frame.end, peer=self._peer))
        else:
            self.response.set_result(frame.response)

    def fail(self, error: TrunklineError) -> None:
        """Give whoever waits the error."""
        if not self.response.done():
            self.response.set_exception(error)


class TrunkStreamCall:
    """A call with a stream of batches: iterating gives what came together, in order.

    What was taken is given back as credit when its reader comes for more, so a slow reader keeps a
    window's worth here, and no more. While the reader waits, what comes goes to `taker`, if one is
    set, and wakes the reader only with what that leaves.
    """

    __slots__ = (
        "_batches",
        "_error",
        "_first",
        "_line",
        "_owed_bytes",
        "_waiter",
        "call_id",
        "is_over",
        "sink",
    )

    def __init__(self, line: "TrunkClientConnection") -> None:
        self.call_id = 0
        self.is_over = False
        """The peer, or the trunk, has ended it."""
        self.sink: BatchSink | None = None
        self._line = line
        self._first: bytes | None = None
        self._batches: list[bytes] = []
        self._owed_bytes = 0
        self._error: TrunklineError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def code(self) -> str:
        """What it ended with, if it has."""
        if not self.is_over:
            return "CANCELLED"
        return "OK" if self._error is None else self._error.code.value

    def deliver(self, frame: trunk_service_pb2.TrunkFrame) -> None:
        """Take what came."""
        if frame.batches:
            if self.sink is not None and self._is_awaited:
                self._batches = self._offer(self.sink, list(frame.batches))
                if not (self._batches or frame.HasField("end")):
                    return
            else:
                self._batches.extend(frame.batches)
        if frame.HasField("response"):
            self._first = frame.response
        if frame.HasField("end"):
            self.is_over = True
            if frame.end.code:
                self._error = from_trunk_end(frame.end, peer=self._line.peer)
            self._line.remove_call(self.call_id)
        self._wake()

    def fail(self, error: TrunklineError) -> None:
        """End it with an error, behind what has come."""
        self.is_over = True
        self._error = error
        self._wake()

    async def read_first(self) -> bytes:
        """Wait for the first response: then the stream stands. Raises what the peer answers.

        It is given once and not kept: it may hold a large snapshot.
        """
        while self._first is None:
            if self.is_over:
                raise self._error or PeerUnavailableError(self._line.peer, "it sent no response")
            await self._news()
        first, self._first = self._first, b""
        return first

    def __aiter__(self) -> "TrunkStreamCall":
        return self

    async def __anext__(self) -> list[bytes]:
        self._give_back()
        while not self._batches:
            if self.is_over:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._news()
        batches, self._batches = self._batches, []
        self._owed_bytes += sum(map(len, batches))
        return batches

    def _give_back(self) -> None:
        owed_bytes = self._owed_bytes
        if owed_bytes * 2 >= WINDOW_BYTES and not self.is_over:
            self._owed_bytes = 0
            self._line.grant_credit(self.call_id, owed_bytes)

    @property
    def _is_awaited(self) -> bool:
        """The reader has taken all there was, and waits for more."""
        return self._waiter is not None and not self._waiter.done()

    def _offer(self, taker: BatchSink, batches: list[bytes]) -> list[bytes]:
        """Give the taker what came; return what it leaves."""
        taken = taker(batches)
        self._owed_bytes += sum(map(len, batches[:taken]))
        self._give_back()
        return batches[taken:]

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


logger = logging.getLogger(__name__)

CONNECT_METHOD: Final = "trunkline.v1.TrunkService/Connect"
# Of one message up, but for a single call that is larger.
_MESSAGE_BYTES: Final = 256 * 1024
# A peer that is silent for this part of `ping_s` is asked, and in the rest looked at so often.
_QUIET_PART: Final = 2 / 3
_LOOKS: Final = 3
# gRPC's words for a write that met the end of its call: why that ended, only the next try can tell.
_WRITE_MET_END: Final = "Internal error from Core"

# It gives bytes: gRPC would log what can't be parsed, and call it the end.
ConnectCall: TypeAlias = grpc.aio.StreamStreamCall[trunk_service_pb2.ConnectRequest, bytes]
ConnectCallable: TypeAlias = grpc.aio.StreamStreamMultiCallable[
    trunk_service_pb2.ConnectRequest, bytes
]


class _Call(Protocol):
    def deliver(self, frame: trunk_service_pb2.TrunkFrame) -> None: ...

    def fail(self, error: TrunklineError) -> None: ...


class TrunkClientConnection:
    """A trunk from its opening to its end, which all its calls end with."""

    def __init__(
        self,
        connect: ConnectCallable,
        *,
        peer: str,
        ping_s: float,
        connect_s: float,
        on_news: Callable[[], None],
    ) -> None:
        """`on_news` is called with each message that the peer sends."""
        self.peer = peer
        self.is_unsupported = False
        """The peer knows no trunks."""
        self.has_connected = False
        self.failure: TrunklineError | None = None
        """Why it is over."""
        self._connect = connect
        self._on_news = on_news
        self._calls: dict[int, _Call] = {}
        self._last_id = 0
        self._task: asyncio.Task[None] | None = None
        # What goes up with the next message: calls by id, the rest, and a ping.
        self._queued: dict[int, trunk_service_pb2.TrunkCall] = {}
        self._upward = trunk_service_pb2.ConnectRequest()
        self._must_ping = False
        self._news_up = asyncio.Event()
        self._quiet_s = ping_s * _QUIET_PART
        self._look_s = (ping_s - self._quiet_s) / _LOOKS
        self._looks_to_connect = max(_LOOKS, round((connect_s - self._quiet_s) / self._look_s))
        self._heard_at_s = 0.0
        # Since it was asked, without an answer.
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.idle = asyncio.Event()
        """Set while no call is open."""
        self.idle.set()

    async def run(self) -> None:
        """Serve the calls until the trunk ends; never raises."""
        if self.failure is not None:
            return
        self._task = asyncio.current_task()
        error: TrunklineError = PeerUnavailableError(self.peer, "its channel is closed")
        try:
            error = await self._serve()
        except Exception:
            # A defect of ours; the peer may be well.
            logger.exception("trunk.failed", extra={"peer": self.peer})
            error = PeerUnavailableError(self.peer, "the trunk to it failed; the log says how")
        finally:
            self._task = None
            self.close(error)

    def close(self, error: TrunklineError) -> None:
        """End it, and every call that is open with an error. Repeating this is harmless."""
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
        """Send a call up; return its id."""
        self._last_id += 1
        request.call_id = self._last_id
        self._calls[self._last_id] = call
        self._queued[self._last_id] = request
        self._news_up.set()
        self.idle.clear()
        if self._timer is None:
            self._hear()
            self._look_in(self._quiet_s)
        return self._last_id

    def remove_call(self, call_id: int) -> None:
        """A call is over, for whatever reason."""
        self._calls.pop(call_id, None)
        if not self._calls:
            self.idle.set()

    def cancel_call(self, call_id: int) -> None:
        """Tell the peer that nothing more of a call is wanted, unless it is over."""
        if self._calls.get(call_id) is None:
            return
        self.remove_call(call_id)
        if self._queued.pop(call_id, None) is None:
            self._upward.leaves.append(call_id)
            self._news_up.set()

    def grant_credit(self, call_id: int, size_bytes: int) -> None:
        """Tell the peer that so much more can be taken."""
        self._upward.credits.add(call_id=call_id, bytes=size_bytes)
        self._news_up.set()

    async def _serve(self) -> TrunklineError:
        try:
            with translate_errors(self.peer):
                raw = self._connect()
        except TrunklineError as error:
            return error
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(raw))
                ended = await self._read(raw)
                writing.cancel()
            return ended
        finally:
            raw.cancel()

    async def _read(self, raw: ConnectCall) -> TrunklineError:
        """Hand out what comes, until nothing more does; return why."""
        calls = self._calls
        try:
            with translate_errors(self.peer):
                while isinstance(given := await raw.read(), bytes):
                    response = trunk_service_pb2.ConnectResponse.FromString(given)
                    self._hear()
                    self.has_connected = True
                    self._on_news()
                    for frame in response.frames:
                        call = calls.get(frame.call_id)
                        if call is not None:
                            call.deliver(frame)
            return PeerUnavailableError(self.peer, "it ended the stream of all calls")
        except DecodeError:
            return PeerProtocolError(self.peer, "it sends what is no message")
        except PeerUnavailableError as error:
            # However the peer calls itself: to us it is this one.
            return PeerUnavailableError(self.peer, error.problem)
        except UnsupportedOperationError:
            self.is_unsupported = True
            return UnsupportedOperationError(CONNECT_METHOD, "the peer doesn't serve it")
        except TrunklineError as error:
            return self._why(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # By gRPC: somebody closed the channel.
            return PeerUnavailableError(self.peer, "its channel is closed")

    def _why(self, error: TrunklineError) -> TrunklineError:
        if isinstance(error, PeerProtocolError) and error.problem == _WRITE_MET_END:
            return PeerUnavailableError(self.peer, "it ended the stream of all calls")
        return error

    async def _write(self, raw: ConnectCall) -> None:
        """Send what goes up, in one message per turn of the loop."""
        try:
            while True:
                await self._news_up.wait()
                self._news_up.clear()
                while (request := self._next_request()) is not None:
                    await raw.write(request)
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The reader hears why.
            return

    def _next_request(self) -> trunk_service_pb2.ConnectRequest | None:
        request, self._upward = self._upward, trunk_service_pb2.ConnectRequest()
        size = 0
        while self._queued:
            call_id, call = next(iter(self._queued.items()))
            size += len(call.request)
            if request.calls and size > _MESSAGE_BYTES:
                return request
            del self._queued[call_id]
            request.calls.append(call)
        if request.calls or request.credits or request.leaves:
            return request
        if self._must_ping:
            self._must_ping = False
            return request
        return None

    def _hear(self) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()
        self._looks = 0

    def _look_in(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Ping a silent peer, and give up one that stays silent.

        Looks without an answer are counted, and not time: a process that was stopped itself, or
        busy for long, looks once, and doesn't blame its peer.
        """
        self._timer = None
        if not self._calls:
            return
        if not self._looks:
            left_s = self._heard_at_s + self._quiet_s - asyncio.get_running_loop().time()
            if left_s > 0:
                self._look_in(left_s)
                return
            self._must_ping = True
            self._news_up.set()
        limit = _LOOKS if self.has_connected else self._looks_to_connect
        if self._looks == limit:
            silent_s = self._quiet_s + limit * self._look_s
            self.close(PeerUnavailableError(self.peer, f"it has been silent for {silent_s:g} s"))
            return
        self._looks += 1
        self._look_in(self._look_s)
