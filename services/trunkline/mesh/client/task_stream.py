"""An open stream of one task: its snapshot, then batches of events."""

from collections.abc import AsyncIterator
from typing import TypeAlias

from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

TaskStreamResponse: TypeAlias = (
    message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse
)


class TaskStream:
    """An open stream of one task. Iterating yields lists of sealed batches, in order.

    `snapshot` is the state that the first batch follows. `message` is a direct reply; then there is
    no snapshot and no batch. A snapshot may be large and a stream may stay open for days, so
    `take_snapshot` releases it.
    """

    def __init__(
        self,
        first_response: TaskStreamResponse | None,
        batches: AsyncIterator[list[bytes]],
    ) -> None:
        self._batches = batches
        self.snapshot: snapshot_pb2.TaskSnapshot | None = None
        self.message: message_pb2.Message | None = None
        if first_response is not None:
            self._take(first_response)

    def _take(self, response: TaskStreamResponse) -> None:
        """Take the snapshot or the direct reply of a first response."""
        if response.HasField("snapshot"):
            self.snapshot = response.snapshot
        elif isinstance(response, message_service_pb2.StreamMessageResponse):
            self.message = response.message if response.HasField("message") else None

    def take_snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        """Return the snapshot and release it."""
        snapshot, self.snapshot = self.snapshot, None
        return snapshot

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        return self._batches
