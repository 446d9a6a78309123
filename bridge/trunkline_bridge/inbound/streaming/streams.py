"""A task's stream as wire events, in what is ready together."""

from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import TaskStream
from trunkline.v1 import event_pb2
from trunkline_bridge.inbound import tracing
from trunkline_bridge.projection import Projection, WholeEvent, WireEvent, project_task

# What is ready together, in order.
WireEvents: TypeAlias = AsyncGenerator[Sequence[WireEvent], None]

read_batch = event_pb2.EventBatch.FromString


async def turn_events(stream: TaskStream, *, history_length: int | None) -> WireEvents:
    """What a stream is from where it was opened: the reply, or a task and all that follows."""
    if stream.message is not None:
        # A direct reply is in no journal: there is nothing to resume and no id.
        yield [WholeEvent(0, 0, a2a_pb2.StreamResponse(message=stream.message))]
        return
    snapshot = stream.snapshot
    if snapshot is not None and snapshot.sequence > 0:
        tracing.note_task(snapshot)
        task = project_task(snapshot, history_length=history_length)
        shown = a2a_pb2.StreamResponse(task=task)
        yield [WholeEvent(snapshot.sequence, 0, shown, snapshot.epoch or 1)]
    apply = projection_of(stream).apply
    async for batches in stream:
        ready = [event for sealed in batches for event in apply(read_batch(sealed))]
        if ready:
            yield ready


def projection_of(stream: TaskStream) -> Projection:
    """Return the projection of what follows in a stream."""
    snapshot = stream.snapshot
    return Projection(snapshot if snapshot is not None and snapshot.sequence else None)
