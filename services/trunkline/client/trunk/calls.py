"""The calls on a trunk: with one answer, or with a stream of batches."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from trunkline.client.status import from_end
from trunkline.client.trunk.line import Line
from trunkline.errors import PeerUnavailableError, TrunklineError
from trunkline.v1 import trunk_service_pb2

# What a reader's side keeps of one stream; a single batch may be larger.
WINDOW_BYTES: Final = 32 * 1024

# Takes what it can of batches without waiting, and returns how many; must not raise.
Taker: TypeAlias = Callable[[list[bytes]], int]


class UnaryCall:
    """A call with one answer."""

    def __init__(self, peer: str) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._peer = peer

    def deliver(self, frame: trunk_service_pb2.TrunkFrame) -> None:
        """Take the answer."""
        if not frame.HasField("end") or self.answer.done():
            return
        if frame.end.code:
            self.answer.set_exception(from_end(frame.end, peer=self._peer))
        else:
            self.answer.set_result(frame.response)

    def fail(self, error: TrunklineError) -> None:
        """Give whoever waits the error."""
        if not self.answer.done():
            self.answer.set_exception(error)


class StreamCall:
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
        "taker",
    )

    def __init__(self, line: Line) -> None:
        self.call_id = 0
        self.is_over = False
        """The peer, or the trunk, has ended it."""
        self.taker: Taker | None = None
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
            if self.taker is not None and self._is_awaited:
                self._batches = self._offer(self.taker, list(frame.batches))
                if not (self._batches or frame.HasField("end")):
                    return
            else:
                self._batches.extend(frame.batches)
        if frame.HasField("response"):
            self._first = frame.response
        if frame.HasField("end"):
            self.is_over = True
            if frame.end.code:
                self._error = from_end(frame.end, peer=self._line.peer)
            self._line.forget(self.call_id)
        self._wake()

    def fail(self, error: TrunklineError) -> None:
        """End it with an error, behind what has come."""
        self.is_over = True
        self._error = error
        self._wake()

    async def first(self) -> bytes:
        """Wait for the first response: then the stream stands. Raises what the peer answers.

        It is given once and not kept: it may hold a large snapshot.
        """
        while self._first is None:
            if self.is_over:
                raise self._error or PeerUnavailableError(self._line.peer, "it sent no response")
            await self._news()
        first, self._first = self._first, b""
        return first

    def __aiter__(self) -> "StreamCall":
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
            self._line.give_credit(self.call_id, owed_bytes)

    @property
    def _is_awaited(self) -> bool:
        """The reader has taken all there was, and waits for more."""
        return self._waiter is not None and not self._waiter.done()

    def _offer(self, taker: Taker, batches: list[bytes]) -> list[bytes]:
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
