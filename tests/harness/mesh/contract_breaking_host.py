"""A host whose agents break the contract of streams, each in one way."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from harness.journal.builders import delta_event
from trunkline.journal.events import build_draft, seal
from trunkline.mesh.server.batch_stream import BatchStream
from trunkline.tasks.lifecycle import State
from trunkline.v1 import (
    event_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    snapshot_pb2,
)


def task_created(text: str) -> event_pb2.Event:
    return delta_event("a", [text], start=event_pb2.ArtifactStart())


def task_ended() -> event_pb2.Event:
    event = event_pb2.Event()
    event.status.status.state = State.TASK_STATE_COMPLETED
    return event


# For each agent its batches after sequence 1, as (first sequence, events), and the expected error.
LIES: dict[str, tuple[Sequence[tuple[int, Sequence[event_pb2.Event]]], str]] = {
    "gap": ([(2, [task_created("x")]), (9, [task_ended()])], "event 9 follows event 2"),
    "early": ([(2, [delta_event("a", ["x"])])], "artifact 'a' was appended to before its create"),
    "late": ([(2, [task_ended(), task_created("x")])], "it sent events after its end"),
    "twice": ([(2, [task_created("x"), task_created("y")])], "artifact 'a' was created twice"),
}


class ContractBreakingHost(message_service_pb2_grpc.MessageServiceServicer):
    """Sends valid messages that violate the contract."""

    async def SendMessage(
        self,
        _request: message_service_pb2.SendMessageRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> message_service_pb2.SendMessageResponse:
        """Answer with an empty response."""
        return message_service_pb2.SendMessageResponse()

    async def DeliverMessages(
        self,
        request: message_service_pb2.DeliverMessagesRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[message_service_pb2.DeliverMessagesResponse]:
        raise NotImplementedError
        yield

    # The generated stubs know only iterators.
    async def StreamMessage(  # type: ignore[override]
        self,
        request: message_service_pb2.StreamMessageRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> BatchStream:
        """Answer with a task, and then with the batches of the agent's lie."""
        task_id = request.submission.task_id
        snapshot = snapshot_pb2.TaskSnapshot(sequence=1)
        snapshot.task.id = task_id
        batches = [
            seal(build_draft(events), task_id=task_id, epoch=1, first_sequence=first, time_ns=1)
            for first, events in LIES[request.agent][0]
        ]
        response = message_service_pb2.StreamMessageResponse(snapshot=snapshot)
        return BatchStream(response, _Batches(batches))


class _Batches:
    """Batches that are all ready. They are taken one by one."""

    def __init__(self, batches: Sequence[bytes]) -> None:
        self._batches = list(batches)

    @property
    def is_over(self) -> bool:
        return not self._batches

    @property
    def is_at_head(self) -> bool:
        return self.is_over

    def take_ready(self, _limit_bytes: int) -> list[bytes]:
        return [self._batches.pop(0)] if self._batches else []

    async def take(self, limit_bytes: int) -> list[bytes]:
        return self.take_ready(limit_bytes)

    def on_ready(self, listener: Callable[[], None]) -> None:
        listener()

    def close(self) -> None:
        self._batches.clear()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        while self._batches:
            yield self.take_ready(0)
