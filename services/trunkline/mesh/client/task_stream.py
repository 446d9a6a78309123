"""An open stream of one task: its snapshot, then batches of events."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import grpc

from trunkline.mesh.client.status import translate_errors
from trunkline.mesh.client.trunk_connection import BatchSink, TrunkStreamCall
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

TaskStreamResponse: TypeAlias = (
    message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse
)
_Call: TypeAlias = (
    grpc.aio.UnaryStreamCall[
        message_service_pb2.StreamMessageRequest, message_service_pb2.StreamMessageResponse
    ]
    | grpc.aio.UnaryStreamCall[
        task_service_pb2.WatchTaskRequest, task_service_pb2.WatchTaskResponse
    ]
)


class TaskStream:
    """An open stream of one task. Iterating yields lists of sealed batches, in order.

    `snapshot` is the state that the first batch follows. `message` is a direct reply; then there is
    no snapshot and no batch. A snapshot may be large and a stream may stay open for days, so
    `take_snapshot` releases it.
    """

    def __init__(
        self, first_response: TaskStreamResponse | None, batches: AsyncIterator[list[bytes]]
    ) -> None:
        """Batches in `first_response` are ignored: `batches` yields them."""
        self._batches = batches
        self.snapshot: snapshot_pb2.TaskSnapshot | None = None
        self.message: message_pb2.Message | None = None
        if first_response is not None and first_response.HasField("snapshot"):
            self.snapshot = first_response.snapshot
        if isinstance(
            first_response, message_service_pb2.StreamMessageResponse
        ) and first_response.HasField("message"):
            self.message = first_response.message

    def take_snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        """Return the snapshot and release it."""
        snapshot, self.snapshot = self.snapshot, None
        return snapshot

    def set_sink(self, sink: BatchSink) -> None:
        """Pass batches to `sink` as they arrive while the reader waits; the reader gets the rest.

        Waking the reader costs more than handling most batches. Streams that do not come over a
        trunk never call the sink.
        """
        if isinstance(self._batches, TrunkStreamCall):
            self._batches.sink = sink

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        return self._batches


@asynccontextmanager
async def open_plain_stream(start: Callable[[], _Call], *, peer: str) -> AsyncIterator[TaskStream]:
    """Open a stream by a plain gRPC call. Leaving the block cancels the call, never the task.

    Raises:
        TrunklineError: the peer's error.
    """
    with translate_errors(peer):
        call = start()
    try:
        # An invalid request fails on the first read.
        first_response = await _read_response(call, peer=peer)
        yield TaskStream(first_response, _read_batches(call, first_response, peer=peer))
    finally:
        call.cancel()


async def _read_batches(
    call: _Call, response: TaskStreamResponse | None, *, peer: str
) -> AsyncIterator[list[bytes]]:
    while response is not None:
        if response.batches:
            yield [batch.SerializeToString() for batch in response.batches]
        response = await _read_response(call, peer=peer)


async def _read_response(call: _Call, *, peer: str) -> TaskStreamResponse | None:
    with translate_errors(peer):
        response = await call.read()
    if isinstance(
        response,
        message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse,
    ):
        return response
    return None
