"""Streams on a trunk: batches wake the reader, or go directly to a sink."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from trunkline.core.runtime import run_in_background
from trunkline.errors import PeerUnavailableError
from trunkline.mesh.client.trunk_connection import (
    TrunkClientConnection,
    TrunkStreamCall,
    TrunkUnaryCall,
)
from trunkline.v1 import trunk_service_pb2


class Sink:
    """A sink that accepts up to `limit` batches."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.accepted: list[bytes] = []

    def __call__(self, batches: list[bytes]) -> int:
        accepted = batches[: self.limit]
        self.accepted += accepted
        self.limit -= len(accepted)
        return len(accepted)


@pytest.fixture
async def connection() -> TrunkClientConnection:
    """Return a trunk without a connection, which stores outgoing requests."""
    return TrunkClientConnection(
        _never,  # type: ignore[arg-type]
        peer="peer",
        ping_s=60.0,
        connect_s=60.0,
        on_message=_nothing,
    )


@pytest.fixture
async def call(connection: TrunkClientConnection) -> AsyncIterator[TrunkStreamCall]:
    stream_call = TrunkStreamCall(connection)
    stream_call.call_id = connection.start_call(stream_call, trunk_service_pb2.TrunkCall())
    yield stream_call
    connection.close(PeerUnavailableError("peer", "the test is over"))


class Reader:
    """Reads a stream to its end and records each wakeup."""

    def __init__(self, call: TrunkStreamCall) -> None:
        self.received: asyncio.Queue[list[bytes] | str] = asyncio.Queue()
        self._call = call

    async def run(self) -> None:
        try:
            async for batches in self._call:
                self.received.put_nowait(batches)
        except PeerUnavailableError as error:
            self.received.put_nowait(error.problem)
        else:
            self.received.put_nowait("the end")


@pytest.fixture
async def reader(call: TrunkStreamCall) -> AsyncIterator[Reader]:
    """Run a reader that waits for batches."""
    batch_reader = Reader(call)
    async with run_in_background(batch_reader.run()):
        # One iteration of the loop starts the reader.
        await asyncio.sleep(0)
        yield batch_reader


def frame(*batches: bytes) -> trunk_service_pb2.TrunkFrame:
    return trunk_service_pb2.TrunkFrame(batches=batches)


async def test_batches_accepted_by_the_sink_wake_no_reader(
    call: TrunkStreamCall, reader: Reader
) -> None:
    call.sink = sink = Sink()
    call.receive(frame(b"1", b"2"))
    call.receive(frame(b"3"))
    assert sink.accepted == [b"1", b"2", b"3"]
    call.fail(PeerUnavailableError("peer", "it is gone"))
    assert await reader.received.get() == "it is gone"


async def test_batches_after_a_refused_one_wake_the_reader_in_order(
    call: TrunkStreamCall, reader: Reader
) -> None:
    call.sink = sink = Sink(limit=1)
    call.receive(frame(b"1", b"2"))
    sink.limit = 10
    # The reader has not run yet, so a batch accepted now would overtake the second one.
    call.receive(frame(b"3"))
    assert await reader.received.get() == [b"2", b"3"]
    assert sink.accepted == [b"1"]
    call.receive(frame(b"4"))
    assert sink.accepted == [b"1", b"4"]


async def test_an_end_wakes_the_reader_after_the_sink_accepted_all_batches(
    call: TrunkStreamCall, reader: Reader
) -> None:
    call.sink = sink = Sink()
    last = frame(b"1")
    last.end.SetInParent()
    call.receive(last)
    assert await reader.received.get() == "the end"
    assert sink.accepted == [b"1"]


class BrokenStream:
    """A stream that breaks with a text of gRPC, or one on which nothing comes."""

    def __init__(self, *, is_silent: bool) -> None:
        self.is_read = asyncio.Event()
        self._is_silent = is_silent

    async def read(self) -> bytes:
        self.is_read.set()
        if self._is_silent:
            await asyncio.Event().wait()
        details = "Internal error from Core"
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), details
        )

    def cancel(self) -> None:
        pass


async def test_a_trunk_that_ends_while_it_asks_for_its_refusal_tells_that_it_is_closed() -> None:
    broken, silent = BrokenStream(is_silent=False), BrokenStream(is_silent=True)
    streams = iter((broken, silent))
    connection = TrunkClientConnection(
        lambda: next(streams),  # type: ignore[arg-type]
        peer="peer",
        ping_s=60.0,
        connect_s=60.0,
        on_message=_nothing,
    )
    async with run_in_background(connection.run()):
        await silent.is_read.wait()
    assert isinstance(connection.failure, PeerUnavailableError)
    assert connection.failure.problem == "its channel is closed"


def _never() -> None:
    raise AssertionError("no connection is expected")


def _nothing() -> None:
    pass


async def test_a_trunk_is_not_checked_for_long_polls_alone() -> None:
    def connect() -> TrunkClientConnection:
        return TrunkClientConnection(
            lambda: BrokenStream(is_silent=True),  # type: ignore[arg-type,return-value]
            peer="peer",
            ping_s=0.03,
            connect_s=0.03,
            on_message=_nothing,
        )

    polled, called = connect(), connect()
    poll = TrunkUnaryCall("peer", is_patient=True)
    call, second_call = TrunkUnaryCall("peer"), TrunkUnaryCall("peer")
    polled.start_call(poll, trunk_service_pb2.TrunkCall())
    called.start_call(call, trunk_service_pb2.TrunkCall())
    with pytest.raises(PeerUnavailableError, match="silent"):
        await call.response
    # It began earlier.
    assert not poll.response.done()
    polled.start_call(second_call, trunk_service_pb2.TrunkCall())
    for response in (second_call.response, poll.response):
        with pytest.raises(PeerUnavailableError, match="silent"):
            await response
