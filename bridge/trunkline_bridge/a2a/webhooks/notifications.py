"""Notifications of a webhook: reads the unsent wire events of its task, and renders them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import V0_1, V0_3
from trunkline.a2a_wire.v0_1 import json_writer as v0_1_json
from trunkline.a2a_wire.v0_3 import json_writer as v0_3_json
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.client import HostClient, TaskStream
from trunkline.errors import CursorExpiredError
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2, webhook_service_pb2
from trunkline_bridge.a2a.projection import (
    EventId,
    FileLinks,
    FullEvent,
    TextDelta,
    View,
    WireEvent,
    open_projection,
    project_task,
    snapshot_event,
)
from trunkline_bridge.a2a.webhooks.sender import Notification

# Adjacent text deltas are joined up to this length.
_TEXT_LENGTH: Final = 64 * 1024
_JSON: Final = "application/json"
_A2A_JSON: Final = "application/a2a+json"

_read_batch = event_pb2.EventBatch.FromString


class UnsentEvents:
    """The unsent wire events of a webhook, in batches of events that are ready together."""

    def __init__(
        self,
        stream: TaskStream,
        seen: EventId | None,
        links: FileLinks,
        *,
        view: View = View.DETAILED,
    ) -> None:
        """`seen` is the last event that was sent; `stream` starts with it."""
        snapshot = stream.take_snapshot()
        self._batches = aiter(stream)
        self._seen = seen
        self._is_checked = seen is None
        self._first: Sequence[WireEvent] = ()
        if snapshot is None or not snapshot.sequence:
            self._apply = open_projection(None, links=links, view=view).apply
        else:
            self._apply = open_projection(snapshot, links=links, view=view).apply
            if seen is None:
                self._first = (snapshot_event(snapshot, links=links, view=view),)
        self.position = seen
        """The id of the last journal event that was read, even if it has no wire events."""

    async def read_next(self, *, limit_s: float) -> Sequence[WireEvent] | None:
        """Return the next wire events, which may be none; None at the end of the task.

        Raises:
            TimeoutError: No event came within `limit_s`; this object can't be used again.
            CursorExpiredError: Events after the cursor no longer exist.
            TrunklineError: The task can't be read.
        """
        if self._first:
            first, self._first = self._first, ()
            self.position = EventId.parse(first[-1].id)
            return first
        try:
            async with asyncio.timeout(limit_s):
                batches = await anext(self._batches)
        except StopAsyncIteration:
            return None
        return [event for sealed in batches for event in self._unseen(_read_batch(sealed))]

    def _unseen(self, batch: event_pb2.EventBatch) -> Iterable[WireEvent]:
        header, seen = batch.header, self._seen
        last, epoch = header.first_sequence + header.count - 1, header.epoch or 1
        events = self._apply(batch)
        if seen is not None:
            if not self._is_checked and epoch != seen.epoch:
                # The cursor is from an earlier epoch, in which another event had this sequence.
                raise CursorExpiredError(header.task_id, str(seen.sequence), str(last))
            events = [event for event in events if (event.sequence, event.n) > seen[:2]]
        self._is_checked = True
        if events and events[-1].sequence == last:
            self.position = EventId(last, events[-1].n, epoch)
        elif seen is None or seen.sequence < last:
            self.position = EventId(last, 0, epoch)
        return events


@asynccontextmanager
async def open_unsent(
    client: HostClient,
    webhook: webhook_service_pb2.Webhook,
    links: FileLinks,
    view: View = View.DETAILED,
) -> AsyncIterator[UnsentEvents]:
    """Open the unsent events of a webhook.

    Without a cursor, they begin with the task's snapshot at the webhook's registration.

    Raises:
        CursorExpiredError: The events no longer exist; reading may raise it as well.
    """
    seen = EventId.parse(webhook.cursor)
    if seen is not None:
        # The event itself is read again, because it may have several wire events.
        after, epoch = seen.sequence - 1, seen.epoch
    else:
        after, epoch = await _find_registration_sequence(client, webhook), 0
    async with client.watch_task(
        webhook.config.task_id,
        account=webhook.account,
        after=after,
        epoch=epoch,
        # From the beginning, the first event is the task.
        with_snapshot=after > 0,
    ) as stream:
        yield UnsentEvents(stream, seen, links, view=view)


@asynccontextmanager
async def open_from_snapshot(
    client: HostClient,
    webhook: webhook_service_pb2.Webhook,
    links: FileLinks,
    view: View = View.DETAILED,
) -> AsyncIterator[UnsentEvents]:
    """Open the task's current snapshot and later events, if older events no longer exist."""
    async with client.watch_task(webhook.config.task_id, account=webhook.account) as stream:
        yield UnsentEvents(stream, None, links, view=view)


async def load_task_at(
    client: HostClient,
    webhook: webhook_service_pb2.Webhook,
    sequence: int,
    links: FileLinks,
    view: View,
) -> task_pb2.Task:
    """Return the task at an event. CursorExpiredError: that state no longer exists."""
    async with client.watch_task(
        webhook.config.task_id, account=webhook.account, after=sequence, until_head=True
    ) as stream:
        snapshot = stream.snapshot or snapshot_pb2.TaskSnapshot()
        return project_task(snapshot, links=links, view=view)


async def replace_artifact(
    client: HostClient,
    webhook: webhook_service_pb2.Webhook,
    delta: TextDelta,
    links: FileLinks,
    view: View,
) -> WireEvent:
    """Return an event with the whole artifact at a text delta, which replaces the receiver's.

    CursorExpiredError: The artifact's state at that event no longer exists.
    """
    task = await load_task_at(client, webhook, delta.sequence, links, view)
    response = delta.artifact.update(append=False, last_chunk=delta.is_last)
    artifact_id = delta.artifact.head.artifact_id
    for artifact in task.artifacts:
        if artifact.artifact_id == artifact_id:
            response.artifact_update.artifact.parts.extend(artifact.parts)
    return FullEvent(delta.sequence, delta.n, response, delta.epoch)


def join_text(events: Iterable[WireEvent]) -> Iterator[WireEvent]:
    """Yield events with adjacent text deltas of one artifact joined, under the last delta's id."""
    deltas: list[TextDelta] = []
    length = 0
    for event in events:
        is_continuation = isinstance(event, TextDelta) and (
            not deltas or (event.artifact is deltas[-1].artifact and not deltas[-1].is_last)
        )
        if deltas and not (is_continuation and length < _TEXT_LENGTH):
            yield _join_deltas(deltas)
            deltas, length = [], 0
        if isinstance(event, TextDelta):
            deltas.append(event)
            length += len(event.text)
        else:
            yield event
    if deltas:
        yield _join_deltas(deltas)


def _join_deltas(deltas: Sequence[TextDelta]) -> TextDelta:
    return deltas[-1]._replace(text="".join(delta.text for delta in deltas))


async def _find_registration_sequence(
    client: HostClient, webhook: webhook_service_pb2.Webhook
) -> int:
    """Return the task's sequence at the registration, or 0 if the task came with the webhook."""
    registered = webhook.created.ToNanoseconds()
    sequence = 0
    async with client.watch_task(
        webhook.config.task_id,
        account=webhook.account,
        after=0,
        with_snapshot=False,
        until_head=True,
    ) as stream:
        async for batches in stream:
            for sealed in batches:
                header = _read_batch(sealed).header
                if header.time.ToNanoseconds() >= registered:
                    return sequence
                sequence = header.first_sequence + header.count - 1
    return sequence


async def render_notifications(
    client: HostClient,
    webhook: webhook_service_pb2.Webhook,
    events: Iterable[WireEvent],
    links: FileLinks,
    *,
    may_repeat: bool = False,
    view: View = View.DETAILED,
) -> AsyncIterator[Notification]:
    """Render events as notifications, in order.

    From v1.0 on, each event is a notification. Adjacent text deltas are joined. Before v1.0, each
    change of status is a notification with the whole task at that event. `may_repeat`: the text of
    the first event may have been delivered in part, so that its whole artifact is sent.

    Raises:
        CursorExpiredError: The task's state at an event no longer exists.
    """
    if webhook.version not in _TASK_WRITERS:
        for event in join_text(events):
            notified = event
            if may_repeat and isinstance(event, TextDelta):
                notified = await replace_artifact(client, webhook, event, links, view)
            may_repeat = False
            content = v1_json.stream_response_json(notified.response)
            yield _build_notification(notified.id, content, _A2A_JSON)
        return
    for event in events:
        if event.response.WhichOneof("payload") in ("task", "status_update"):
            task = await load_task_at(client, webhook, event.sequence, links, view)
            yield _build_notification(
                event.id, _TASK_WRITERS[webhook.version](task, webhook), _JSON
            )


def _v0_3_task_json(task: task_pb2.Task, _webhook: webhook_service_pb2.Webhook) -> Json:
    return v0_3_json.task_json(task)


def _v0_1_task_json(task: task_pb2.Task, webhook: webhook_service_pb2.Webhook) -> Json:
    # In v0.1 the id of a webhook is the task id that the client chose.
    return v0_1_json.task_json(task, client_id=webhook.config.id)


_TASK_WRITERS = {V0_3: _v0_3_task_json, V0_1: _v0_1_task_json}


def _build_notification(event_id: str, content: Json, content_type: str) -> Notification:
    return Notification(event_id, dumps(content).encode("utf-8"), content_type)
