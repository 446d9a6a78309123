"""A host whose agents break the contract of streams, each in one way."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from trunkline.journal.events import build_draft, delta_event, seal
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

    async def StreamMessage(
        self,
        request: message_service_pb2.StreamMessageRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[message_service_pb2.StreamMessageResponse]:
        task_id = request.submission.task_id
        snapshot = snapshot_pb2.TaskSnapshot(sequence=1)
        snapshot.task.id = task_id
        yield message_service_pb2.StreamMessageResponse(snapshot=snapshot)
        for first, events in LIES[request.agent][0]:
            sealed = seal(
                build_draft(events), task_id=task_id, epoch=1, first_sequence=first, time_ns=1
            )
            batch = event_pb2.EventBatch.FromString(sealed)
            yield message_service_pb2.StreamMessageResponse(batches=[batch])
