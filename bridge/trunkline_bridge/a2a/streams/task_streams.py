"""Streams of tasks as wire events: from the start of a turn, from a snapshot, after an event."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import invalid_params
from trunkline.client import TaskStream
from trunkline.errors import CursorExpiredError
from trunkline.json_values import read_text, update_struct
from trunkline.task_states import OUTCOME_KEY, TERMINAL, TURN_END
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.projection import (
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
from trunkline_bridge.http import tracing

WireEvents: TypeAlias = AsyncGenerator[Sequence[WireEvent], None]
"""A stream of events. Each item has the events that are ready together, in order."""
EventsContext: TypeAlias = AbstractAsyncContextManager[WireEvents]
"""Opens a stream of events, and closes it on exit. Errors before the first event are raised on
entering."""

_HEADER = "Last-Event-ID"

_Item = TypeVar("_Item")
_State: TypeAlias = task_pb2.TaskState.ValueType

read_batch = event_pb2.EventBatch.FromString


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """When a stream of events ends before its task does."""

    states: Set[_State] = frozenset()
    """The states that end the turn."""
    repeats_status: bool = False
    """Repeat the status of a snapshot whose turn has ended as an event, as before A2A 1.0."""
    auth_wait_s: float | None = None
    """Seconds in auth-required after which the stream ends, or None for no limit."""


class EndWatch:
    """Finds the end of one stream."""

    def __init__(self, end: StreamEnd, state: _State = task_pb2.TASK_STATE_UNSPECIFIED) -> None:
        """`state` is the task's state at the start of a stream that begins without a snapshot."""
        self._end = end
        self.state = state
        """The task's latest state; unspecified if it is unknown."""
        self.is_over = False
        """True after the status that ends the turn."""
        self.final_status: FullEvent | None = None
        """The event to send if the stream ends without a further status."""
        self._timed_state = task_pb2.TASK_STATE_UNSPECIFIED
        self._deadline: float | None = None

    def cut(self, ready: Sequence[WireEvent]) -> Sequence[WireEvent]:
        """Return events up to the end of the turn."""
        for index, event in enumerate(ready):
            if not isinstance(event, FullEvent):
                continue
            response = event.response
            if response.HasField("task"):
                self.state = response.task.status.state
                is_repeated = self._end.repeats_status and self.state in self._end.states
                self.final_status = _build_status_event(event) if is_repeated else None
            elif response.HasField("status_update"):
                self.state = response.status_update.status.state
                if self.state in self._end.states:
                    self.is_over = True
                    self.final_status = None
                    return ready[: index + 1]
        return ready

    async def next(self, items: AsyncIterator[_Item]) -> _Item | None:
        """Return the next item; None at the end, or if the task waits too long for credentials."""
        if self._end.auth_wait_s is not None and self.state != self._timed_state:
            self._timed_state = self.state
            waits = self.state == task_pb2.TASK_STATE_AUTH_REQUIRED
            now = asyncio.get_running_loop().time()
            self._deadline = now + self._end.auth_wait_s if waits else None
        if self._deadline is None:
            return await anext(items, None)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(items, None)
        except TimeoutError:
            return None


async def task_events(
    stream: TaskStream,
    end: StreamEnd,
    *,
    links: FileLinks,
    view: View = View.DETAILED,
    history_length: int | None = None,
    starts_turn: bool = False,
) -> WireEvents:
    """Yield a direct reply, or a task's snapshot and the events after it.

    The stream ends with the task or as `end` says. If the snapshot's turn has ended, it ends there,
    unless a message `starts_turn`.
    """
    if stream.message is not None:
        # A direct reply is in no journal, so its sequence is 0.
        reply = a2a_pb2.StreamResponse(message=stream.message)
        yield [FullEvent(0, 0, links.event_to_urls(reply))]
        return
    snapshot = stream.snapshot
    apply = build_projection(stream, links, view).apply
    watch = EndWatch(end)
    if snapshot is not None and snapshot.sequence > 0:
        tracing.record_task(snapshot)
        first = snapshot_event(snapshot, history_length=history_length, links=links, view=view)
        del snapshot
        yield watch.cut([first])
        del first
    if starts_turn or watch.state not in end.states:
        reader = aiter(stream)
        while not watch.is_over and (batches := await watch.next(reader)) is not None:
            ready = [event for sealed in batches for event in apply(read_batch(sealed))]
            if ready:
                cut = watch.cut(ready)
                tracing.record_state(watch.state)
                yield cut
                del cut
            # The next batches may take days: release these.
            del batches, ready
    if watch.final_status is not None:
        yield [watch.final_status]


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
    end: StreamEnd,
    *,
    seen: EventId,
    head: snapshot_pb2.TaskSnapshot,
    links: FileLinks,
    view: View = View.DETAILED,
) -> WireEvents:
    """Return the events after `seen`. The stream begins with the journal event of `seen`.

    Raises:
        CursorExpiredError: the event was lost with an earlier epoch of the journal.
    """
    # The snapshot may be large and the stream may last for days.
    expired, state = cursor_expired(seen, head), head.task.status.state
    del head
    reader = aiter(stream)
    batches = await anext(reader, None)
    if batches is not None and (read_batch(batches[0]).header.epoch or 1) != seen.epoch:
        raise expired
    apply = build_projection(stream, links, view).apply

    async def read() -> WireEvents:
        nonlocal batches
        watch = EndWatch(end, state)
        while batches is not None:
            ready = [
                event
                for sealed in batches
                for event in apply(read_batch(sealed))
                if (event.sequence, event.n) > seen[:2]
            ]
            batches = None
            if ready:
                yield watch.cut(ready)
                del ready
            if watch.is_over:
                return
            batches = await watch.next(reader)

    return read()


def cursor_expired(seen: EventId, head: snapshot_pb2.TaskSnapshot) -> CursorExpiredError:
    """Return the error for an event that was lost; `head` is the current snapshot."""
    return CursorExpiredError(head.task.id, str(seen.sequence), str(head.sequence))
