"""Brings what a child has written into its parent's journal: mostly by copying bytes."""

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Final

from trunkline.journal.events import (
    Draft,
    Kind,
    draft,
    event_count,
    header_of,
    header_place,
    kind_of,
)
from trunkline.journal.reading.cutting import behind
from trunkline.v1 import event_pb2

# What a parent takes over from a child.
_FORWARDED: Final = Kind.DELTA.bit | Kind.REWOUND.bit


def splice(
    sealed: bytes,
    *,
    agent: str,
    known: MutableMapping[str, int],
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
        header = header_of(sealed)
    origin = _origin_for_parent(header, agent)
    writer = origin.task_id
    skipped = max(0, known.get(writer, 0) + 1 - origin.first_sequence)
    if skipped >= header.count or not header.kinds & _FORWARDED:
        return []
    if not skipped and not header.kinds & ~_FORWARDED:
        known[writer] = origin.first_sequence + header.count - 1
        _, begin = header_place(sealed)
        return [Draft(sealed[begin:], header.count, header.kinds, origin)]
    batch = event_pb2.EventBatch.FromString(sealed)
    events: Sequence[event_pb2.Event] = behind(batch.events, skipped) if skipped else batch.events
    sequence = origin.first_sequence + skipped
    drafts: list[Draft] = []
    for is_forwarded, run, count in _runs(events):
        if is_forwarded:
            drafts.append(draft(run, origin=_origin_at(origin, sequence)))
            known[writer] = sequence + count - 1
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
        is_forwarded = bool(kind_of(event).bit & _FORWARDED)
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
