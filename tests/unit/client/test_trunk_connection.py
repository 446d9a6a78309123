"""A stream on a trunk: what comes wakes its reader, or goes at once to whoever takes it first."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from trunkline.client.trunk_connection import WINDOW_BYTES, TrunkClientConnection, TrunkStreamCall
from trunkline.errors import PeerUnavailableError
from trunkline.runtime import run_in_background
from trunkline.v1 import trunk_service_pb2


class Taker:
    """Takes batches as they come, so many at most."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.taken: list[bytes] = []

    def __call__(self, batches: list[bytes]) -> int:
        taken = batches[: self.limit]
        self.taken += taken
        self.limit -= len(taken)
        return len(taken)


@pytest.fixture
async def line() -> TrunkClientConnection:
    """A trunk that nobody runs: what goes up stays with it."""
    return TrunkClientConnection(
        _never,  # type: ignore[arg-type]
        peer="peer",
        ping_s=60.0,
        connect_s=60.0,
        on_message=_nothing,
    )


@pytest.fixture
async def call(line: TrunkClientConnection) -> AsyncIterator[TrunkStreamCall]:
    begun = TrunkStreamCall(line)
    begun.call_id = line.start_call(begun, trunk_service_pb2.TrunkCall())
    yield begun
    line.close(PeerUnavailableError("peer", "the test is over"))


class Reader:
    """Reads a stream to its end, and keeps what woke it."""

    def __init__(self, call: TrunkStreamCall) -> None:
        self.read: asyncio.Queue[list[bytes] | str] = asyncio.Queue()
        self._call = call

    async def run(self) -> None:
        try:
            async for batches in self._call:
                self.read.put_nowait(batches)
        except PeerUnavailableError as error:
            self.read.put_nowait(error.problem)
        else:
            self.read.put_nowait("the end")


@pytest.fixture
async def reader(call: TrunkStreamCall) -> AsyncIterator[Reader]:
    """Someone who waits for what comes."""
    one = Reader(call)
    async with run_in_background(one.run()):
        # One turn of the loop begins it.
        await asyncio.sleep(0)
        yield one


def frame(*batches: bytes) -> trunk_service_pb2.TrunkFrame:
    return trunk_service_pb2.TrunkFrame(batches=batches)


async def test_what_is_taken_at_once_wakes_no_reader(call: TrunkStreamCall, reader: Reader) -> None:
    call.sink = taker = Taker()
    call.deliver(frame(b"1", b"2"))
    call.deliver(frame(b"3"))
    assert taker.taken == [b"1", b"2", b"3"]
    call.fail(PeerUnavailableError("peer", "it is gone"))
    assert await reader.read.get() == "it is gone"


async def test_what_is_left_and_all_behind_it_wakes_the_reader_in_order(
    call: TrunkStreamCall, reader: Reader
) -> None:
    call.sink = taker = Taker(limit=1)
    call.deliver(frame(b"1", b"2"))
    taker.limit = 10
    # Before the reader had its turn: taken now, it would overtake the second.
    call.deliver(frame(b"3"))
    assert await reader.read.get() == [b"2", b"3"]
    assert taker.taken == [b"1"]
    call.deliver(frame(b"4"))
    assert taker.taken == [b"1", b"4"]


async def test_an_end_wakes_the_reader_though_all_before_it_was_taken(
    call: TrunkStreamCall, reader: Reader
) -> None:
    call.sink = taker = Taker()
    last = frame(b"1")
    last.end.SetInParent()
    call.deliver(last)
    assert await reader.read.get() == "the end"
    assert taker.taken == [b"1"]


async def test_what_is_taken_is_given_back_as_credit(
    line: TrunkClientConnection, call: TrunkStreamCall, reader: Reader
) -> None:
    call.sink = Taker()
    for _ in range(4):
        call.deliver(frame(bytes(WINDOW_BYTES // 4)))
    request = line._next_request()
    assert request is not None
    assert sum(credit.bytes for credit in request.credits) == WINDOW_BYTES
    assert reader.read.empty()


def _never() -> None:
    raise AssertionError("nobody connects")


def _nothing() -> None:
    pass
