"""The client of trunkline.v1.TrunkService: all calls of this process to one peer on one stream."""

import asyncio
import contextvars
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from trunkline.errors import PeerTimeoutError, PeerUnavailableError, TrunklineError
from trunkline.mesh.client.breaker import Breaker, is_peer_failure
from trunkline.mesh.client.tracing import ClientCall, MethodTracer
from trunkline.mesh.client.trunk_connection import (
    WINDOW_BYTES,
    ConnectCallable,
    TrunkClientConnection,
    TrunkStreamCall,
    TrunkUnaryCall,
)
from trunkline.mesh.trunk_wire.methods import LONG_POLLS
from trunkline.v1 import trunk_service_pb2

# A larger request would delay the others, so it is sent as a plain call.
REQUEST_BYTES: Final = 256 * 1024
CONNECT_S: Final = 5.0
# Half of what a server allows. It knows the certificate of a connection from its start only.
_MAX_AGE_S: Final = 12 * 3600.0


class Trunk:
    """Calls one peer over one connection.

    The first call connects. If the connection breaks, all calls on it fail, and the next call
    reconnects unless the peer's breaker is open.
    """

    def __init__(
        self,
        connect: ConnectCallable,
        *,
        peer: str,
        group: asyncio.TaskGroup,
        breaker: Breaker,
        ping_s: float,
        generation: Callable[[], int] = lambda: 0,
    ) -> None:
        """`connect` starts a call of CONNECT_METHOD. `group` owns the trunk's tasks until `close`.

        A peer that sends nothing for `ping_s` seconds has failed. For its first message it has
        CONNECT_S seconds. `generation` returns the number of this process's certificate: when it
        changes, later calls use a new connection, and open calls keep theirs.
        """
        self.peer = peer
        self.breaker = breaker
        self.is_supported: bool = True
        """False once the peer has answered that it does not serve trunks."""
        self._connect = connect
        self._group = group
        self._ping_s = ping_s
        self._generation = generation
        self._connection: TrunkClientConnection | None = None
        self._connected_with = 0
        self._connected_at = 0.0
        # Connections without new calls, which are closed after their last one.
        self._former: dict[TrunkClientConnection, asyncio.Task[None]] = {}
        self._is_closed = False
        self._is_confirmed = False

    async def call_unary(
        self, tracer: MethodTracer, request: bytes, *, timeout_s: float, user_statement: str
    ) -> bytes:
        """Call the unary method of `tracer`; return its serialized response.

        Raises:
            TrunklineError: the peer's error, or PeerTimeoutError without an answer in time.
            UnsupportedOperationError: if `is_supported` is False now, repeat it as a plain call.
        """
        connection = self._open()
        traced = ClientCall(tracer)
        call = TrunkUnaryCall(self.peer, is_patient=tracer.method in LONG_POLLS)
        request_frame = _start_frame(tracer.method, request, traced.carrier, user_statement)
        request_frame.timeout.FromNanoseconds(int(timeout_s * 1e9))
        call_id = connection.start_call(call, request_frame)
        code = "CANCELLED"
        try:
            async with asyncio.timeout(timeout_s):
                response = await call.response
            code = "OK"
            return response
        except TimeoutError:
            # The peer applies the same deadline, so it needs no cancellation.
            connection.remove_call(call_id)
            code = "DEADLINE_EXCEEDED"
            raise PeerTimeoutError(self.peer, f"no answer within {timeout_s:g} s") from None
        except TrunklineError as error:
            code = error.code.value
            raise
        except asyncio.CancelledError:
            connection.cancel_call(call_id)
            raise
        finally:
            connection.remove_call(call_id)
            traced.end(code, is_stream=False)

    def start_stream(
        self, tracer: MethodTracer, request: bytes, user_statement: str
    ) -> TrunkStreamCall:
        """Call the streaming method of `tracer`. The caller cancels the call, even after its end.

        Raises:
            PeerUnavailableError: the peer's breaker is open, or the trunk was closed.
        """
        connection = self._open()
        traced = ClientCall(tracer)
        call = TrunkStreamCall(connection, partial(traced.end, is_stream=True))
        request_frame = _start_frame(tracer.method, request, traced.carrier, user_statement)
        request_frame.credit_bytes = WINDOW_BYTES
        call.call_id = connection.start_call(call, request_frame)
        return call

    async def wait_idle(self) -> None:
        """Wait until no call is open."""
        for connection in (self._connection, *self._former):
            if connection is not None:
                await connection.idle.wait()

    def close(self) -> None:
        """Close the connection and end every open call."""
        self._is_closed = True
        for connection in (self._connection, *self._former):
            if connection is not None:
                connection.close(PeerUnavailableError(self.peer, "its channel is closed"))

    def _open(self) -> TrunkClientConnection:
        """Return the connection, or start a new one if there is none.

        Raises:
            PeerUnavailableError: the breaker is open, or the trunk was closed.
        """
        connection = self._connection
        if connection is not None and connection.failure is None:
            if not self._is_outdated():
                return connection
            self._retire(connection)
        if self._is_closed:
            raise PeerUnavailableError(self.peer, "its channel is closed")
        self.breaker.check()
        self._is_confirmed = False
        self._connected_with = self._generation()
        self._connected_at = time.monotonic()
        connection = self._connection = TrunkClientConnection(
            self._connect,
            peer=self.peer,
            ping_s=self._ping_s,
            connect_s=CONNECT_S,
            on_message=self._on_message,
        )
        # The connection must not inherit the context variables of its first caller.
        self._group.create_task(self._run(connection), context=contextvars.Context())
        return connection

    def _is_outdated(self) -> bool:
        return (
            self._connected_with != self._generation()
            or time.monotonic() - self._connected_at > _MAX_AGE_S
        )

    def _retire(self, connection: TrunkClientConnection) -> None:
        """Close a connection after its last call."""
        self._former[connection] = self._group.create_task(
            self._close_idle(connection), context=contextvars.Context()
        )

    async def _close_idle(self, connection: TrunkClientConnection) -> None:
        await connection.idle.wait()
        connection.close(PeerUnavailableError(self.peer, "a newer connection replaced this one"))

    async def _run(self, connection: TrunkClientConnection) -> None:
        try:
            await connection.run()
        finally:
            if connection.is_unsupported:
                self.is_supported = False
            closing = self._former.pop(connection, None)
            if closing is not None:
                # The newer connection reports on the peer.
                closing.cancel()
            elif self._is_closed or connection.failure is None:
                self.breaker.on_abandon()
            elif is_peer_failure(connection.failure, peer=self.peer):
                self.breaker.on_failure(connection.failure.metadata()["problem"])

    def _on_message(self) -> None:
        if not self._is_confirmed:
            self.breaker.on_success()
            self._is_confirmed = self.breaker.state == "closed"


def _start_frame(
    method: str, request: bytes, carrier: dict[str, str], user_statement: str
) -> trunk_service_pb2.TrunkCall:
    return trunk_service_pb2.TrunkCall(
        method=method,
        request=request,
        traceparent=carrier.get("traceparent", ""),
        tracestate=carrier.get("tracestate", ""),
        user_statement=user_statement,
    )
