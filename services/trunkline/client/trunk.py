"""All calls to one peer on one stream: the caller's side of trunkline.v1.TrunkService."""

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc

from trunkline.client.breaker import Breaker, is_peer_failure
from trunkline.client.tracing import MethodTracer, end_span
from trunkline.client.trunk_connection import (
    CONNECT_METHOD,
    WINDOW_BYTES,
    ConnectCallable,
    TrunkClientConnection,
    TrunkStreamCall,
    TrunkUnaryCall,
)
from trunkline.errors import PeerTimeoutError, PeerUnavailableError, TrunklineError
from trunkline.v1 import trunk_service_pb2

# A larger request would hold the others up: it goes by a plain call.
REQUEST_BYTES: Final = 256 * 1024
CONNECT_S: Final = 5.0


class Trunk:
    """The calls of this process to one peer.

    It connects with the first call. When it breaks, all calls on it fail, and the next one
    connects again: unless the peer keeps failing, and its breaker is open.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        peer: str,
        group: asyncio.TaskGroup,
        breaker: Breaker,
        ping_s: float,
        connect_s: float = CONNECT_S,
    ) -> None:
        """Its tasks run in the group, until `close`.

        A peer that is silent for `ping_s` has failed; for its first word it has `connect_s`.
        """
        self.peer = peer
        self.breaker = breaker
        self.is_supported = True
        """Until the peer says that it knows no trunks."""
        self.is_in_process = False
        """This process serves the peer itself: calls have no CLIENT spans."""
        self._connect: ConnectCallable = channel.stream_stream(
            f"/{CONNECT_METHOD}", request_serializer=_serialized, response_deserializer=None
        )
        self._group = group
        self._ping_s = ping_s
        self._connect_s = connect_s
        self._line: TrunkClientConnection | None = None
        self._is_closed = False
        self._is_trusted = False
        self._spans: dict[str, MethodTracer] = {}

    async def call_unary(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """Call a unary method; return its serialised response.

        Raises:
            TrunklineError: whatever the peer answered; PeerTimeoutError when it didn't in time.
            UnsupportedOperationError: and `is_served` is false: it must be a plain call.
        """
        line = self._open()
        span, carrier = self._spans_of(method).start_span()
        call = TrunkUnaryCall(self.peer)
        made = _call(method, request, carrier)
        made.timeout.FromNanoseconds(int(timeout_s * 1e9))
        call_id = line.start_call(call, made)
        code = "CANCELLED"
        try:
            async with asyncio.timeout(timeout_s):
                response = await call.response
            code = "OK"
            return response
        except TimeoutError:
            # The peer ends it by itself, at the same time.
            line.remove_call(call_id)
            code = "DEADLINE_EXCEEDED"
            raise PeerTimeoutError(self.peer, f"no answer within {timeout_s:g} s") from None
        except TrunklineError as error:
            code = error.code.value
            raise
        except asyncio.CancelledError:
            line.cancel_call(call_id)
            raise
        finally:
            line.remove_call(call_id)
            end_span(span, code, is_stream=False)

    @asynccontextmanager
    async def open_stream(
        self, method: str, request: bytes
    ) -> AsyncIterator[tuple[bytes, TrunkStreamCall]]:
        """Call a method that answers with a stream, for the length of a block.

        Entered, the stream stands: its first response without batches, then the batches. Errors
        are those of `unary`.
        """
        line = self._open()
        span, carrier = self._spans_of(method).start_span()
        call = TrunkStreamCall(line)
        made = _call(method, request, carrier)
        made.credit_bytes = WINDOW_BYTES
        call.call_id = line.start_call(call, made)
        try:
            yield await call.read_first(), call
        finally:
            line.cancel_call(call.call_id)
            end_span(span, call.code, is_stream=True)

    async def wait_idle(self) -> None:
        """Wait until no call is open."""
        if self._line is not None:
            await self._line.idle.wait()

    def close(self) -> None:
        """End it, and every call that is open."""
        self._is_closed = True
        if self._line is not None:
            self._line.close(PeerUnavailableError(self.peer, "its channel is closed"))

    def _open(self) -> TrunkClientConnection:
        """Return the line that stands, or begin to make one.

        Raises:
            PeerUnavailableError: the breaker is open, or the trunk was closed.
        """
        line = self._line
        if line is not None and line.failure is None:
            return line
        if self._is_closed:
            raise PeerUnavailableError(self.peer, "its channel is closed")
        self.breaker.check()
        self._is_trusted = False
        line = self._line = TrunkClientConnection(
            self._connect,
            peer=self.peer,
            ping_s=self._ping_s,
            connect_s=self._connect_s,
            on_news=self._on_news,
        )
        # Whoever happens to call first must not lend it his context.
        self._group.create_task(self._run(line), context=contextvars.Context())
        return line

    async def _run(self, line: TrunkClientConnection) -> None:
        try:
            await line.run()
        finally:
            if line.is_unsupported:
                self.is_supported = False
            if self._is_closed or line.failure is None:
                self.breaker.on_abandon()
            elif is_peer_failure(line.failure, of=self.peer):
                self.breaker.on_failure(line.failure.metadata()["problem"])

    def _on_news(self) -> None:
        if not self._is_trusted:
            self.breaker.on_success()
            self._is_trusted = self.breaker.state == "closed"

    def _spans_of(self, method: str) -> MethodTracer:
        spans = self._spans.get(method)
        if spans is None:
            spans = self._spans[method] = MethodTracer(
                method, self.peer, is_in_process=self.is_in_process
            )
        return spans


def _call(method: str, request: bytes, carrier: dict[str, str]) -> trunk_service_pb2.TrunkCall:
    return trunk_service_pb2.TrunkCall(
        method=method,
        request=request,
        traceparent=carrier.get("traceparent", ""),
        tracestate=carrier.get("tracestate", ""),
    )


def _serialized(request: trunk_service_pb2.ConnectRequest) -> bytes:
    return request.SerializeToString()
