"""A task as it streams in: the snapshot, then batches of events."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self, TypeAlias

import grpc

from trunkline.client.status import mesh_errors
from trunkline.errors import PeerProtocolError
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

_Response: TypeAlias = (
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
    """An open stream of one task. Iterating gives what came together: sealed batches, in order.

    `snapshot` is where the batches go on from; `message` is a direct reply, and then all there is.
    """

    def __init__(self, call: _Call, first: _Response | None, *, peer: str) -> None:
        self._call = call
        self._first = first
        self._peer = peer
        self.snapshot: snapshot_pb2.TaskSnapshot | None = None
        self.message: message_pb2.Message | None = None
        if first is not None and first.HasField("snapshot"):
            self.snapshot = first.snapshot
        if isinstance(first, message_service_pb2.StreamMessageResponse) and first.HasField(
            "message"
        ):
            self.message = first.message

    @classmethod
    async def open(cls, call: _Call, *, peer: str) -> Self:
        """Read the first response of a call, so that what is wrong with the request shows here.

        Raises:
            TrunklineError: whatever the peer answered.
        """
        return cls(call, await _read(call, peer=peer), peer=peer)

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        response, self._first = self._first, None
        while response is not None:
            if response.batches:
                yield [batch.SerializeToString() for batch in response.batches]
            response = await _read(self._call, peer=self._peer)


@asynccontextmanager
async def opened(
    begin: Callable[[], _Call], *, peer: str, needs_answer: bool = False
) -> AsyncIterator[TaskStream]:
    """Begin a call for the length of a block; leaving it cancels the call, never the task.

    Raises:
        PeerProtocolError: the stream is empty although an answer is due.
    """
    with mesh_errors(peer):
        call = begin()
    try:
        stream = await TaskStream.open(call, peer=peer)
        if needs_answer and stream.snapshot is None and stream.message is None:
            raise PeerProtocolError(peer, "its stream began with neither a snapshot nor a message")
        yield stream
    finally:
        call.cancel()


async def _read(call: _Call, *, peer: str) -> _Response | None:
    with mesh_errors(peer):
        response = await call.read()
    if isinstance(
        response,
        message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse,
    ):
        return response
    return None
