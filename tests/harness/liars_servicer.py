"""A host whose agents break the contract, each in its way."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from trunkline.journal.events import delta_run, draft, seal
from trunkline.tasks.lifecycle import State
from trunkline.v1 import (
    event_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    snapshot_pb2,
)


def begun(text: str) -> event_pb2.Event:
    return delta_run("a", [text], start=event_pb2.ArtifactStart())


def ended() -> event_pb2.Event:
    event = event_pb2.Event()
    event.status.status.state = State.TASK_STATE_COMPLETED
    return event


# What each liar says behind sequence 1, as (first sequence, events), and what is said of it.
LIES: dict[str, tuple[Sequence[tuple[int, Sequence[event_pb2.Event]]], str]] = {
    "gap": ([(2, [begun("x")]), (9, [ended()])], "event 9 follows event 2"),
    "early": ([(2, [delta_run("a", ["x"])])], "artifact 'a' was appended to before its create"),
    "late": ([(2, [ended(), begun("x")])], "it went on after its end"),
    "twice": ([(2, [begun("x"), begun("y")])], "artifact 'a' was created twice"),
}


class Liars(message_service_pb2_grpc.MessageServiceServicer):
    """Keeps to the types of the contract, and not to its words."""

    async def SendMessage(
        self,
        _request: message_service_pb2.SendMessageRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> message_service_pb2.SendMessageResponse:
        """Answer with nothing."""
        return message_service_pb2.SendMessageResponse()

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
            sealed = seal(draft(events), task_id=task_id, epoch=1, first_sequence=first, time_ns=1)
            batch = event_pb2.EventBatch.FromString(sealed)
            yield message_service_pb2.StreamMessageResponse(batches=[batch])
