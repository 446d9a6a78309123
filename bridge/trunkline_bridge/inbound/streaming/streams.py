"""A task's stream as wire events, in what is ready together."""

import asyncio
from collections.abc import AsyncGenerator, Sequence, Set
from contextlib import aclosing
from typing import TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import TaskStream
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.inbound import tracing
from trunkline_bridge.projection import Links, Projection, WholeEvent, WireEvent, task_event
from trunkline_bridge.projection.states import TURN_ENDS

# What is ready together, in order.
WireEvents: TypeAlias = AsyncGenerator[Sequence[WireEvent], None]

read_batch = event_pb2.EventBatch.FromString


async def turn_events(
    stream: TaskStream, *, history_length: int | None, links: Links
) -> WireEvents:
    """What a stream is from where it was opened: the reply, or a task and all that follows."""
    if stream.message is not None:
        # A direct reply is in no journal: there is nothing to resume and no id.
        reply = a2a_pb2.StreamResponse(message=stream.message)
        yield [WholeEvent(0, 0, links.show_event(reply))]
        return
    snapshot = stream.snapshot
    apply = projection_of(stream, links).apply
    if snapshot is not None and snapshot.sequence > 0:
        tracing.note_task(snapshot)
        shown = [task_event(snapshot, history_length=history_length, links=links)]
        del snapshot
        yield shown
        shown.clear()
    async for batches in stream:
        ready = [event for sealed in batches for event in apply(read_batch(sealed))]
        if ready:
            yield ready


async def snapshot_event(snapshot: snapshot_pb2.TaskSnapshot, links: Links) -> WireEvents:
    """What a task is now, and nothing that follows."""
    yield [task_event(snapshot, links=links)]


async def one_turn(
    events: WireEvents, ends: Set[task_pb2.TaskState.ValueType] = TURN_ENDS
) -> WireEvents:
    """What a stream is before A2A 1.0: it ends with a status that ends the turn, and has only one.

    A task that was shown when its turn was over already is followed by its status.
    """
    ended: WholeEvent | None = None
    async with aclosing(events):
        async for ready in events:
            for index, event in enumerate(ready):
                if not isinstance(event, WholeEvent):
                    continue
                response = event.response
                if response.HasField("task"):
                    is_over = response.task.status.state in ends
                    ended = _status_event(event) if is_over else None
                elif response.status_update.status.state in ends:
                    yield ready[: index + 1]
                    return
            yield ready
    if ended is not None:
        yield [ended]


async def without_long_auth(
    events: WireEvents,
    wait_s: float,
    *,
    state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_UNSPECIFIED,
) -> WireEvents:
    """What a stream is, ended when its task has waited for credentials for `wait_s`.

    `state` is the task's where the stream begins, unless its first event tells.
    """
    loop = asyncio.get_running_loop()
    until = None
    async with aclosing(events):
        while True:
            if state == task_pb2.TASK_STATE_AUTH_REQUIRED:
                until = loop.time() + wait_s
            elif state != task_pb2.TASK_STATE_UNSPECIFIED:
                until = None
            ready = await _before(until, events)
            if ready is None:
                return
            state = _told(ready)
            yield ready
            del ready


async def _before(until: float | None, events: WireEvents) -> Sequence[WireEvent] | None:
    """Read what is ready next; None when the stream has ended, or the time has come."""
    if until is None:
        return await anext(events, None)
    try:
        async with asyncio.timeout_at(until):
            return await anext(events, None)
    except TimeoutError:
        return None


def turn_from_here(stream: TaskStream, links: Links) -> WireEvents:
    """What a task is now, and what follows up to the end of its turn; a watch goes on behind."""
    snapshot = stream.snapshot
    if snapshot is not None and snapshot.task.status.state in TURN_ENDS:
        return snapshot_event(snapshot, links)
    return one_turn(turn_events(stream, history_length=None, links=links))


async def until_interrupted(stream: TaskStream) -> None:
    """Read a turn to its end, or to where it needs credentials: there a stream stays open."""
    if stream.snapshot is not None and _is_over(stream.snapshot.task.status):
        return
    async for batches in stream:
        for sealed in batches:
            if any(_is_over(event.status.status) for event in read_batch(sealed).events):
                return


def projection_of(stream: TaskStream, links: Links) -> Projection:
    """Return the projection of what follows in a stream, which keeps its snapshot no longer."""
    snapshot = stream.take_snapshot()
    has_begun = snapshot is not None and snapshot.sequence
    return Projection(snapshot if has_begun else None, links=links)


def _is_over(status: task_pb2.TaskStatus) -> bool:
    return status.state in TURN_ENDS or status.state == task_pb2.TASK_STATE_AUTH_REQUIRED


def _told(ready: Sequence[WireEvent]) -> task_pb2.TaskState.ValueType:
    """The state that events tell at last; unspecified if they tell none."""
    for event in reversed(ready):
        if isinstance(event, WholeEvent):
            response = event.response
            if response.HasField("status_update"):
                return response.status_update.status.state
            if response.HasField("task"):
                return response.task.status.state
    return task_pb2.TASK_STATE_UNSPECIFIED


def _status_event(shown: WholeEvent) -> WholeEvent:
    """The status of a task that was shown, as an event of its own."""
    task = shown.response.task
    response = a2a_pb2.StreamResponse()
    update = response.status_update
    update.task_id, update.context_id = task.id, task.context_id
    update.status.CopyFrom(task.status)
    return WholeEvent(shown.sequence, shown.n + 1, response, shown.epoch)
