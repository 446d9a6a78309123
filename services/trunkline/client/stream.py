"""A task as it streams in: the snapshot, then batches of events."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import grpc

from trunkline.client.status import mesh_errors
from trunkline.client.trunk.calls import StreamCall, Taker
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

Response: TypeAlias = message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse
_Call: TypeAlias = (
    grpc.aio.UnaryStreamCall[
        message_service_pb2.StreamMessageRequest, message_service_pb2.StreamMessageResponse
    ]
    | grpc.aio.UnaryStreamCall[
        task_service_pb2.WatchTaskRequest, task_service_pb2.WatchTaskResponse
    ]
)


class TaskStream:
    """An open stream of one task. Iterating gives what came together: sealed batches, in order.

    `snapshot` is where the batches go on from; `message` is a direct reply, and then all there is.
    The snapshot may be large, and the stream stand for days: `take_snapshot` keeps it no longer.
    """

    def __init__(self, first: Response | None, batches: AsyncIterator[list[bytes]]) -> None:
        """`first` is the first response; what it has of batches is not looked at."""
        self._batches = batches
        self.snapshot: snapshot_pb2.TaskSnapshot | None = None
        self.message: message_pb2.Message | None = None
        if first is not None and first.HasField("snapshot"):
            self.snapshot = first.snapshot
        if isinstance(first, message_service_pb2.StreamMessageResponse) and first.HasField(
            "message"
        ):
            self.message = first.message

    def take_snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        """Return the snapshot and keep it no longer."""
        snapshot, self.snapshot = self.snapshot, None
        return snapshot

    def offer_to(self, taker: Taker) -> None:
        """Let `taker` have batches as soon as they come, while the reader waits for some.

        It returns how many it took; what it leaves, the reader gets. It saves waking the reader,
        which costs more than most batches; where a batch's way doesn't allow it, it isn't called.
        """
        if isinstance(self._batches, StreamCall):
            self._batches.taker = taker

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        return self._batches


@asynccontextmanager
async def opened(begin: Callable[[], _Call], *, peer: str) -> AsyncIterator[TaskStream]:
    """Begin a plain call for the length of a block; leaving it cancels the call, never the task.

    Raises:
        TrunklineError: whatever the peer answered.
    """
    with mesh_errors(peer):
        call = begin()
    try:
        # What is wrong with the request shows here.
        first = await _read(call, peer=peer)
        yield TaskStream(first, _rest(call, first, peer=peer))
    finally:
        call.cancel()


async def _rest(call: _Call, response: Response | None, *, peer: str) -> AsyncIterator[list[bytes]]:
    while response is not None:
        if response.batches:
            yield [batch.SerializeToString() for batch in response.batches]
        response = await _read(call, peer=peer)


async def _read(call: _Call, *, peer: str) -> Response | None:
    with mesh_errors(peer):
        response = await call.read()
    if isinstance(
        response,
        message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse,
    ):
        return response
    return None
