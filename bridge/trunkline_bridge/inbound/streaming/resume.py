"""Going on behind an event that the client has seen, by its id."""

from collections.abc import Set

from trunkline.client import TaskStream
from trunkline.errors import CursorExpiredError
from trunkline.v1 import snapshot_pb2, task_pb2
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.inbound.streaming.streams import WireEvents, projection_of, read_batch
from trunkline_bridge.projection import EventId, Links, count_last_events
from trunkline_bridge.projection.states import ENDED

_HEADER = "Last-Event-ID"


def read_event_id(text: str) -> EventId:
    """Return the id that a client gives. WireError: no event has such an id."""
    seen = EventId.parse(text)
    if seen is None:
        raise invalid_params((_HEADER, "must be the id of an event of this task"))
    return seen


def check_known(seen: EventId, head: snapshot_pb2.TaskSnapshot) -> None:
    """Refuse an event that the task, as it is now, can't have had.

    Raises:
        WireError: it isn't there yet.
        CursorExpiredError: it went with an earlier life of the journal.
    """
    if seen.sequence <= head.sequence:
        return
    if seen.epoch < head.epoch:
        raise expired_at(seen, head)
    problem = (
        f"the task has no event {seen.sequence} yet, the last one is {head.sequence}; "
        "SubscribeToTask without Last-Event-ID goes on from there"
    )
    raise invalid_params((_HEADER, problem))


def is_end(
    seen: EventId,
    head: snapshot_pb2.TaskSnapshot,
    ends: Set[task_pb2.TaskState.ValueType] = ENDED,
) -> bool:
    """Whether an event is the last one of a task that has ended, or of its turn."""
    return (
        head.task.status.state in ends
        and (seen.sequence, seen.epoch) == (head.sequence, head.epoch or 1)
        and seen.n + 1 >= count_last_events(head)
    )


async def nothing() -> WireEvents:
    """What is behind the last event."""
    return
    yield


async def unseen_events(
    stream: TaskStream, *, seen: EventId, expired: CursorExpiredError, links: Links
) -> WireEvents:
    """What is behind an event that the client has seen: its journal event is read again first.

    The first item is empty: it says that the event is there.

    Raises:
        CursorExpiredError: `expired`, as that event went with an earlier life of the journal.
    """
    apply = projection_of(stream, links).apply
    is_checked = False
    async for batches in stream:
        if not is_checked:
            if (read_batch(batches[0]).header.epoch or 1) != seen.epoch:
                raise expired
            is_checked = True
            yield []
        ready = [
            event
            for sealed in batches
            for event in apply(read_batch(sealed))
            if (event.sequence, event.n) > seen[:2]
        ]
        if ready:
            yield ready


def expired_at(seen: EventId, head: snapshot_pb2.TaskSnapshot) -> CursorExpiredError:
    """Return the error for an event that is gone; `head` is the task as it is now."""
    return CursorExpiredError(head.task.id, str(seen.sequence), str(head.sequence))
