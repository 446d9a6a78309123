"""The plain view of a task: its statuses, and exactly one answer artifact for each turn."""

from collections.abc import Iterator
from typing import Protocol

from trunkline.a2a_wire.roles import ArtifactRole
from trunkline.a2a_wire.wire_events import ArtifactView, FullEvent, TextDelta, WireEvent
from trunkline.core.parts import is_plain_text
from trunkline.core.task_states import TURN_END
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, snapshot_pb2
from trunkline_bridge.a2a.projection.links import RELATIVE_LINKS, FileLinks
from trunkline_bridge.a2a.projection.plain_answer import (
    AnswerContent,
    PlainAnswer,
    View,
    answer_head,
    find_rest,
    to_parts,
)
from trunkline_bridge.a2a.projection.task_projection import TaskProjection


class Projection(Protocol):
    """Converts the journal events of one task to wire events, each batch once and in order."""

    def apply(self, batch: event_pb2.EventBatch) -> list[WireEvent]:
        """Return the wire events of a batch."""


def open_projection(
    snapshot: snapshot_pb2.TaskSnapshot | None,
    *,
    links: FileLinks = RELATIVE_LINKS,
    view: View = View.DETAILED,
) -> Projection:
    """Return the projection of a view, after a snapshot or from the task's start."""
    if view is View.PLAIN:
        return PlainProjection(snapshot, links=links)
    return TaskProjection(snapshot, links=links)


class PlainProjection:
    """Converts the journal events of one task to wire events of the plain view.

    It stores the texts of the current turns' artifacts, because they may come in another order
    than in the answer. An event has at most one update of the answer, and the status after it.
    """

    def __init__(
        self,
        snapshot: snapshot_pb2.TaskSnapshot | None = None,
        *,
        links: FileLinks = RELATIVE_LINKS,
    ) -> None:
        """Start after `snapshot`, or at the task's start; `links` converts references to files."""
        # The statuses are the same in both views.
        self._detailed = TaskProjection(snapshot, links=links)
        self._links = links
        self._answer = PlainAnswer(snapshot)
        self._context_id = snapshot.task.context_id if snapshot is not None else ""
        self._task_id = snapshot.task.id if snapshot is not None else ""
        self._epoch = 1
        self._view = self._answer_view()

    def apply(self, batch: event_pb2.EventBatch) -> list[WireEvent]:
        """Return the wire events of a batch, in order."""
        header = batch.header
        self._task_id = header.task_id
        self._epoch = header.epoch or 1
        events: list[WireEvent] = []
        sequence = header.first_sequence
        for event in batch.events:
            if event.HasField("delta"):
                events += self._delta(header, sequence, event.delta)
                sequence += max(1, len(event.delta.texts))
            else:
                events += self._other(header, sequence, event)
                sequence += max(1, len(event.plan.texts))
        return events

    def _delta(
        self, header: event_pb2.BatchHeader, sequence: int, delta: event_pb2.ArtifactDelta
    ) -> Iterator[WireEvent]:
        answer = self._answer
        key = (header.origin.task_id, delta.artifact_id)
        contents = [part_pb2.Part(text=text) for text in delta.texts]
        if not contents and delta.HasField("part"):
            contents = [delta.part]
        for number, part in enumerate(contents or [part_pb2.Part(text="")], start=1):
            is_last = delta.last and number >= len(contents)
            segment = answer.find(key)
            if key == answer.live and segment is not None and not is_last and is_plain_text(part):
                segment.texts.append(part.text)
                yield TextDelta(sequence, 0, self._view, part.text, False, self._epoch)
            else:
                # An artifact stays in the answer of the turn in which it began.
                turn = answer.turn if segment is None else segment.turn
                before = answer.content(turn)
                if segment is None or (number == 1 and delta.HasField("start")):
                    origin = header.origin if header.HasField("origin") else None
                    segment = answer.begin(key, delta.start.kind, origin)
                segment.add(part)
                segment.is_closed = is_last
                yield from self._update(sequence, before, turn=turn)
            sequence += 1

    def _other(
        self, header: event_pb2.BatchHeader, sequence: int, event: event_pb2.Event
    ) -> Iterator[WireEvent]:
        answer = self._answer
        before = answer.content()
        match event.WhichOneof("event"):
            case "created":
                self._context_id = event.created.context_id
                self._view = self._answer_view()
                yield from self._status(header, sequence, event)
            case "status":
                answer.has_ended = event.status.status.state in TURN_END
                is_closed = bool(answer.content()) and answer.has_ended
                yield from self._update(sequence, before, closes=is_closed)
                yield from self._status(header, sequence, event, n=int(is_closed))
            case "turn_started":
                answer.start_turn(event.turn_started.turn)
                answer.update_live()
                self._view = self._answer_view()
            case "rewound":
                yield from self._rewind(header, sequence, event.rewound.remains)
            case "plan" if event.plan.steps:
                answer.set_plan(event.plan.steps, is_rewritten=event.plan.rewritten)
                yield from self._update(sequence, before)
            case "child_started":
                answer.start_child(event.child_started)
                yield from self._update(sequence, before)
            case "child_finished":
                answer.stop_child(event.child_finished)
                yield from self._update(sequence, before)

    def _status(
        self, header: event_pb2.BatchHeader, sequence: int, event: event_pb2.Event, *, n: int = 0
    ) -> Iterator[WireEvent]:
        """Yield the event of the detailed view that is not an artifact."""
        single = event_pb2.BatchHeader()
        single.CopyFrom(header)
        single.first_sequence, single.count = sequence, 1
        for wire in self._detailed.apply(event_pb2.EventBatch(header=single, events=[event])):
            if not wire.response.HasField("artifact_update"):
                yield FullEvent(sequence, n, wire.response, self._epoch)

    def _rewind(
        self, header: event_pb2.BatchHeader, sequence: int, remains: artifact_pb2.Artifact
    ) -> Iterator[WireEvent]:
        key = (header.origin.task_id, remains.artifact_id)
        segment = self._answer.find(key)
        if segment is None:
            return
        before = self._answer.content(segment.turn)
        segment.content, segment.texts, segment.is_closed = [], [], False
        for part in remains.parts:
            segment.add(part)
        yield from self._update(sequence, before, turn=segment.turn)

    def _update(
        self,
        sequence: int,
        before: AnswerContent,
        *,
        turn: int | None = None,
        closes: bool = False,
    ) -> Iterator[FullEvent]:
        """Yield the update that changes the sent answer to the present answer, if they differ.

        It is the answer of a turn, by default of the current one.
        """
        self._answer.update_live()
        turn = self._answer.turn if turn is None else turn
        after = self._answer.content(turn)
        rest = find_rest(before, after)
        if rest == [] and not closes:
            return
        is_new = not before or rest is None
        view = self._view if turn == self._answer.turn else self._answer_view(turn)
        update = view.update(append=not is_new, last_chunk=closes)
        artifact = update.artifact_update.artifact
        artifact.parts.extend(to_parts(after if is_new else rest or ()))
        if not artifact.parts:
            artifact.parts.add(text="")
        yield FullEvent(sequence, 0, self._links.event_to_urls(update), self._epoch)

    def _answer_view(self, turn: int | None = None) -> ArtifactView:
        head = answer_head(self._answer.turn if turn is None else turn)
        return ArtifactView(self._task_id, self._context_id, head, role=ArtifactRole.ANSWER)
