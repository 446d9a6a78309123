"""Cuts batches of events in two, where a reader's cursor or a fold lies within one."""

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
    """Return what a sealed batch holds behind a sequence, a run of texts split where it must be.

    For the resume path: it parses the batch, unless there is nothing to cut off.
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
    """Parse a sealed batch, up to a sequence that it covers if one is given."""
    batch = event_pb2.EventBatch.FromString(sealed)
    header = batch.header
    if until is None or header.first_sequence + header.count - 1 <= until:
        return batch
    kept = until + 1 - header.first_sequence
    events = _before(batch.events, kept)
    del batch.events[:]
    batch.events.extend(events)
    header.count = kept
    header.kinds = _kinds(events)
    return batch


def drop_sequences(events: Iterable[event_pb2.Event], skipped: int) -> list[event_pb2.Event]:
    """Leave out the first sequences; a run of texts goes on with those that are left."""
    rest: list[event_pb2.Event] = []
    for event in events:
        count = event_count(event)
        if skipped <= 0:
            rest.append(event)
        elif skipped < count:
            rest.append(_cut(event, skipped))
        skipped -= count
    return rest


def _before(events: Iterable[event_pb2.Event], kept: int) -> list[event_pb2.Event]:
    """Keep the first sequences; a run of texts ends with those that are kept."""
    first: list[event_pb2.Event] = []
    for event in events:
        if kept <= 0:
            break
        count = event_count(event)
        one = event_pb2.Event()
        one.CopyFrom(event)
        if kept < count:
            del (one.delta if one.HasField("delta") else one.plan).texts[kept:]
            # The close belongs to the run's last text.
            if one.HasField("delta"):
                one.delta.last = False
        first.append(one)
        kept -= count
    return first


def _cut(event: event_pb2.Event, skipped: int) -> event_pb2.Event:
    """Leave out a run's first texts, and with them what the first delta says of the artifact."""
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


# What a parent takes over from a child.
_FORWARDED: Final = EventKind.DELTA.bit | EventKind.REWOUND.bit


def splice(
    sealed: bytes,
    *,
    agent: str,
    forwarded: MutableMapping[str, int],
    header: event_pb2.BatchHeader | None = None,
) -> list[Draft]:
    """Return what a sealed batch of a child adds to artifacts, as drafts for its parent's journal.

    A batch that holds nothing else is not parsed: its events are copied as bytes.

    `agent` is the child's agent. `known` holds, by the task that wrote first, the last sequence
    that was forwarded: what is not behind it is left out, and it is moved on. So a child's stream
    may be read again from anywhere. Events between which others were left out get drafts of their
    own, since the sequences of a draft's origin have no gaps. `header` is the batch's, if whoever
    calls has read it.
    """
    if header is None:
        header = parse_header(sealed)
    origin = _origin_for_parent(header, agent)
    writer = origin.task_id
    skipped = max(0, forwarded.get(writer, 0) + 1 - origin.first_sequence)
    if skipped >= header.count or not header.kinds & _FORWARDED:
        return []
    if not skipped and not header.kinds & ~_FORWARDED:
        forwarded[writer] = origin.first_sequence + header.count - 1
        _, begin = header_span(sealed)
        return [Draft(sealed[begin:], header.count, header.kinds, origin)]
    batch = event_pb2.EventBatch.FromString(sealed)
    events: Sequence[event_pb2.Event] = (
        drop_sequences(batch.events, skipped) if skipped else batch.events
    )
    sequence = origin.first_sequence + skipped
    drafts: list[Draft] = []
    for is_forwarded, run, count in _runs(events):
        if is_forwarded:
            drafts.append(build_draft(run, origin=_origin_at(origin, sequence)))
            forwarded[writer] = sequence + count - 1
        sequence += count
    return drafts


def _runs(
    events: Sequence[event_pb2.Event],
) -> Iterable[tuple[bool, Sequence[event_pb2.Event], int]]:
    """Yield adjacent events that a parent takes over, or not, and how many sequences they cover."""
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
    """Where the events were first written, as the parent of this batch's task says it."""
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
