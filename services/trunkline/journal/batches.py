"""Cuts batches of events at a sequence, and splices a child's batches into its parent's journal."""

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Final

from trunkline.journal.events import (
    Draft,
    EventKind,
    build_draft,
    event_count,
    event_kind,
    header_span,
    parse_header,
)
from trunkline.v1 import event_pb2


def trim_batch(sealed: bytes, after: int) -> bytes:
    """Return a sealed batch without its sequences up to `after`. It may split a run of texts.

    `after` must be before the batch's last sequence. If it is before the first one, the batch is
    returned without parsing.
    """
    skipped = after + 1 - parse_header(sealed).first_sequence
    if skipped <= 0:
        return sealed
    batch = event_pb2.EventBatch.FromString(sealed)
    events = drop_sequences(batch.events, skipped)
    rest = event_pb2.EventBatch(header=batch.header, events=events)
    header = rest.header
    header.first_sequence += skipped
    header.count -= skipped
    header.kinds = _kinds(events)
    if header.HasField("origin"):
        header.origin.first_sequence += skipped
    return rest.SerializeToString()


def parse_batch(sealed: bytes, *, until: int | None = None) -> event_pb2.EventBatch:
    """Parse a sealed batch. If `until` is set, drop the events after this sequence."""
    batch = event_pb2.EventBatch.FromString(sealed)
    header = batch.header
    if until is None or header.first_sequence + header.count - 1 <= until:
        return batch
    count = until + 1 - header.first_sequence
    events = _take_sequences(batch.events, count)
    del batch.events[:]
    batch.events.extend(events)
    header.count = count
    header.kinds = _kinds(events)
    return batch


def drop_sequences(events: Iterable[event_pb2.Event], skipped: int) -> list[event_pb2.Event]:
    """Return events without their first `skipped` sequences. It may split a run of texts."""
    rest: list[event_pb2.Event] = []
    for event in events:
        count = event_count(event)
        if skipped <= 0:
            rest.append(event)
        elif skipped < count:
            rest.append(_drop_texts(event, skipped))
        skipped -= count
    return rest


def _take_sequences(events: Iterable[event_pb2.Event], count: int) -> list[event_pb2.Event]:
    """Return copies of the events of the first `count` sequences. It may split a run of texts."""
    first: list[event_pb2.Event] = []
    for event in events:
        if count <= 0:
            break
        copy = event_pb2.Event()
        copy.CopyFrom(event)
        if count < event_count(event):
            del (copy.delta if copy.HasField("delta") else copy.plan).texts[count:]
            # `last` applies to the run's last text, which is dropped.
            if copy.HasField("delta"):
                copy.delta.last = False
        first.append(copy)
        count -= event_count(event)
    return first


def _drop_texts(event: event_pb2.Event, skipped: int) -> event_pb2.Event:
    """Return a copy of a run without its first texts and without the start of the artifact."""
    rest = event_pb2.Event()
    rest.CopyFrom(event)
    if rest.HasField("delta"):
        del rest.delta.texts[:skipped]
        rest.delta.ClearField("start")
    else:
        del rest.plan.texts[:skipped]
    return rest


def _kinds(events: Iterable[event_pb2.Event]) -> int:
    kinds = 0
    for event in events:
        kinds |= event_kind(event).bit
    return kinds


# The kinds of a child's events that are copied to its parent.
_FORWARDED: Final = EventKind.DELTA.bit | EventKind.REWOUND.bit


def splice(
    sealed: bytes, batch: event_pb2.EventBatch, *, agent: str, forwarded: MutableMapping[str, int]
) -> list[Draft]:
    """Return the artifact events of a child's sealed batch as drafts for its parent's journal.

    `batch` is the sealed batch, parsed. `agent` is the child's agent. `forwarded` maps each origin
    task, which first wrote the events, to its last forwarded sequence. Events up to it are skipped,
    and it is advanced, so the child's stream may be read again from any cursor. A draft covers
    sequences of its origin without gaps: after a skipped event, a new draft begins.

    If all events of the batch are forwarded, their bytes are copied as they are.
    """
    header = batch.header
    origin = _origin_for_parent(header, agent)
    origin_task = origin.task_id
    skipped = max(0, forwarded.get(origin_task, 0) + 1 - origin.first_sequence)
    if skipped >= header.count or not header.kinds & _FORWARDED:
        return []
    if not skipped and not header.kinds & ~_FORWARDED:
        forwarded[origin_task] = origin.first_sequence + header.count - 1
        _, begin = header_span(sealed)
        return [Draft(sealed[begin:], header.count, header.kinds, origin)]
    events: Sequence[event_pb2.Event] = (
        drop_sequences(batch.events, skipped) if skipped else batch.events
    )
    sequence = origin.first_sequence + skipped
    drafts: list[Draft] = []
    for is_forwarded, run, count in _runs(events):
        if is_forwarded:
            drafts.append(build_draft(run, origin=_origin_at(origin, sequence)))
            forwarded[origin_task] = sequence + count - 1
        sequence += count
    return drafts


def _runs(
    events: Sequence[event_pb2.Event],
) -> Iterable[tuple[bool, Sequence[event_pb2.Event], int]]:
    """Yield runs of events: whether they are forwarded, the events, the number of sequences."""
    run: list[event_pb2.Event] = []
    count = 0
    was_forwarded = False
    for event in events:
        is_forwarded = bool(event_kind(event).bit & _FORWARDED)
        if run and is_forwarded != was_forwarded:
            yield was_forwarded, run, count
            run, count = [], 0
        run.append(event)
        count += event_count(event)
        was_forwarded = is_forwarded
    if run:
        yield was_forwarded, run, count


def _origin_for_parent(header: event_pb2.BatchHeader, agent: str) -> event_pb2.Origin:
    """Return the origin of a child's events for its parent's journal."""
    origin = event_pb2.Origin()
    if header.HasField("origin"):
        origin.CopyFrom(header.origin)
        origin.path.insert(0, agent)
        origin.child_task_id = header.task_id
        return origin
    origin.agent = agent
    origin.task_id = header.task_id
    origin.first_sequence = header.first_sequence
    origin.path.append(agent)
    return origin


def _origin_at(origin: event_pb2.Origin, sequence: int) -> event_pb2.Origin:
    moved = event_pb2.Origin()
    moved.CopyFrom(origin)
    moved.first_sequence = sequence
    return moved
