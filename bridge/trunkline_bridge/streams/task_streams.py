"""Streams of tasks as wire events: from the start of a turn, from a snapshot, after an event."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence, Set
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias, TypeVar

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import invalid_params
from trunkline.client import TaskStream
from trunkline.errors import CursorExpiredError
from trunkline.json_values import read_text, update_struct
from trunkline.task_states import OUTCOME_KEY, TERMINAL, TURN_END
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.edge import tracing
from trunkline_bridge.projection import (
    EventId,
    FileLinks,
    FullEvent,
    Projection,
    View,
    WireEvent,
    count_final_events,
    open_projection,
    snapshot_event,
)

WireEvents: TypeAlias = AsyncGenerator[Sequence[WireEvent], None]
"""A stream of events. Each item has the events that are ready together, in order."""
EventsContext: TypeAlias = AbstractAsyncContextManager[WireEvents]
"""Opens a stream of events, and closes it on exit. Errors before the first event are raised on
entering."""

_HEADER = "Last-Event-ID"

_Item = TypeVar("_Item")

read_batch = event_pb2.EventBatch.FromString


class _AuthWait:
    """Limits how long a stream waits for events while its task waits for credentials."""

    def __init__(self, limit_s: float | None) -> None:
        """Wait at most `limit_s` seconds; None: no limit."""
        self._limit_s = limit_s
        self._deadline: float | None = None

    def update(self, state: task_pb2.TaskState.ValueType) -> None:
        """Note the latest state of the task, unspecified if it has not changed."""
        if state == task_pb2.TASK_STATE_AUTH_REQUIRED and self._limit_s is not None:
            self._deadline = asyncio.get_running_loop().time() + self._limit_s
        elif state != task_pb2.TASK_STATE_UNSPECIFIED:
            self._deadline = None

    async def next(self, items: AsyncIterator[_Item]) -> _Item | None:
        """Return the next item; None at the end or at the deadline."""
        if self._deadline is None:
            return await anext(items, None)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(items, None)
        except TimeoutError:
            return None


async def turn_events(
    stream: TaskStream,
    *,
    history_length: int | None,
    links: FileLinks,
    auth_wait_s: float | None = None,
    view: View = View.DETAILED,
) -> WireEvents:
    """Yield a direct reply, or a task's snapshot and the events after it until the task ends.

    End also when the task has been in auth-required for `auth_wait_s` seconds.
    """
    if stream.message is not None:
        # A direct reply is in no journal, so its sequence is 0.
        reply = a2a_pb2.StreamResponse(message=stream.message)
        yield [FullEvent(0, 0, links.event_to_urls(reply))]
        return
    snapshot = stream.snapshot
    apply = build_projection(stream, links, view).apply
    auth_wait = _AuthWait(auth_wait_s)
    if snapshot is not None and snapshot.sequence > 0:
        tracing.record_task(snapshot)
        state = snapshot.task.status.state
        events = [
            snapshot_event(
                snapshot,
                history_length=history_length,
                links=links,
                view=view,
            )
        ]
        del snapshot
        yield events
        events.clear()
        auth_wait.update(state)
    reader = aiter(stream)
    while (batches := await auth_wait.next(reader)) is not None:
        ready = [event for sealed in batches for event in apply(read_batch(sealed))]
        if ready:
            state = _last_state(ready)
            tracing.record_state(state)
            yield ready
            auth_wait.update(state)
        # The next batches may take days: release these.
        del batches, ready


async def snapshot_events(
    snapshot: snapshot_pb2.TaskSnapshot,
    links: FileLinks,
    view: View = View.DETAILED,
) -> WireEvents:
    """Yield the task's snapshot alone."""
    yield [snapshot_event(snapshot, links=links, view=view)]


async def until_turn_end(
    events: WireEvents, ends: Set[task_pb2.TaskState.ValueType] = TURN_END
) -> WireEvents:
    """Yield events up to the status that ends the turn, as streams before A2A 1.0 do.

    If the stream ends with a snapshot of an ended turn, the snapshot's status follows as an event.
    """
    final_status: FullEvent | None = None
    async with aclosing(events):
        async for ready in events:
            for index, event in enumerate(ready):
                if not isinstance(event, FullEvent):
                    continue
                response = event.response
                if response.HasField("task"):
                    has_ended = response.task.status.state in ends
                    final_status = _build_status_event(event) if has_ended else None
                elif response.status_update.status.state in ends:
                    yield ready[: index + 1]
                    return
            yield ready
    if final_status is not None:
        yield [final_status]


async def limit_auth_wait(
    events: WireEvents,
    wait_s: float,
    *,
    state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_UNSPECIFIED,
) -> WireEvents:
    """Yield events until the task has been in auth-required for `wait_s` seconds.

    `state` is the task's state at the start of a stream that does not begin with a snapshot.
    """
    auth_wait = _AuthWait(wait_s)
    auth_wait.update(state)
    async with aclosing(events):
        while (ready := await auth_wait.next(events)) is not None:
            state = _last_state(ready)
            yield ready
            del ready
            auth_wait.update(state)


def current_turn_events(
    stream: TaskStream,
    links: FileLinks,
    view: View = View.DETAILED,
) -> WireEvents:
    """Yield the task's snapshot, and its events up to the end of the turn."""
    snapshot = stream.snapshot
    if snapshot is not None and snapshot.task.status.state in TURN_END:
        return snapshot_events(snapshot, links, view)
    events = turn_events(stream, history_length=None, links=links, view=view)
    return until_turn_end(events)


async def read_until_interrupted(stream: TaskStream) -> None:
    """Read a turn until it ends or needs credentials. Streams stay open in the second case."""
    if stream.snapshot is not None and _is_over(stream.snapshot.task.status):
        return
    async for batches in stream:
        for sealed in batches:
            if any(_is_over(event.status.status) for event in read_batch(sealed).events):
                return


def build_projection(
    stream: TaskStream, links: FileLinks, view: View = View.DETAILED
) -> Projection:
    """Return the projection of a stream's events after its snapshot, which the stream releases."""
    snapshot = stream.take_snapshot()
    has_events = snapshot is not None and snapshot.sequence
    return open_projection(snapshot if has_events else None, links=links, view=view)


def _is_over(status: task_pb2.TaskStatus) -> bool:
    return status.state in TURN_END or status.state == task_pb2.TASK_STATE_AUTH_REQUIRED


def _last_state(ready: Sequence[WireEvent]) -> task_pb2.TaskState.ValueType:
    """Return the last task state that events report; unspecified if they report none."""
    for event in reversed(ready):
        if isinstance(event, FullEvent):
            response = event.response
            if response.HasField("status_update"):
                return response.status_update.status.state
            if response.HasField("task"):
                return response.task.status.state
    return task_pb2.TASK_STATE_UNSPECIFIED


def _build_status_event(snapshot: FullEvent) -> FullEvent:
    """Return the status in a snapshot event as a separate event."""
    task = snapshot.response.task
    response = a2a_pb2.StreamResponse()
    update = response.status_update
    update.task_id, update.context_id = task.id, task.context_id
    update.status.CopyFrom(task.status)
    if outcome := read_text(task.metadata, OUTCOME_KEY):
        update_struct(update.metadata, {OUTCOME_KEY: outcome})
    return FullEvent(snapshot.sequence, snapshot.n + 1, response, snapshot.epoch)


def parse_event_id(text: str) -> EventId:
    """Return the event id in a request. WireError: it is malformed."""
    seen = EventId.parse(text)
    if seen is None:
        raise invalid_params((_HEADER, "must be the id of an event of this task"))
    return seen


def check_event_exists(seen: EventId, head: snapshot_pb2.TaskSnapshot) -> None:
    """Check an event id against the end of the task's journal; `head` is the current snapshot.

    Raises:
        WireError: the journal has no such event yet.
        CursorExpiredError: the event was lost with an earlier epoch of the journal.
    """
    if seen.sequence <= head.sequence:
        return
    if seen.epoch < head.epoch:
        raise cursor_expired(seen, head)
    problem = (
        f"the task has no event {seen.sequence} yet, its last event is {head.sequence}; "
        "call SubscribeToTask without Last-Event-ID to continue from there"
    )
    raise invalid_params((_HEADER, problem))


def is_last_event(
    seen: EventId,
    head: snapshot_pb2.TaskSnapshot,
    ends: Set[task_pb2.TaskState.ValueType] = TERMINAL,
    view: View = View.DETAILED,
) -> bool:
    """Return whether the state is one of `ends` and the event is the last one."""
    return (
        head.task.status.state in ends
        and (seen.sequence, seen.epoch) == (head.sequence, head.epoch or 1)
        and seen.n + 1 >= count_final_events(head, view)
    )


async def no_events() -> WireEvents:
    """Yield nothing."""
    return
    yield


async def unseen_events(
    stream: TaskStream,
    *,
    seen: EventId,
    expired: CursorExpiredError,
    links: FileLinks,
    view: View = View.DETAILED,
) -> WireEvents:
    """Yield the events after `seen`. The stream begins with the journal event of `seen`.

    The first item is empty and confirms that the event exists.

    Raises:
        CursorExpiredError: `expired`; the event was lost with an earlier epoch of the journal.
    """
    apply = build_projection(stream, links, view).apply
    is_first = True
    async for batches in stream:
        if is_first:
            if (read_batch(batches[0]).header.epoch or 1) != seen.epoch:
                raise expired
            is_first = False
            yield []
        ready = [
            event
            for sealed in batches
            for event in apply(read_batch(sealed))
            if (event.sequence, event.n) > seen[:2]
        ]
        if ready:
            yield ready


def cursor_expired(seen: EventId, head: snapshot_pb2.TaskSnapshot) -> CursorExpiredError:
    """Return the error for an event that was lost; `head` is the current snapshot."""
    return CursorExpiredError(head.task.id, str(seen.sequence), str(head.sequence))
