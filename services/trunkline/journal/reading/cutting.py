"""Cuts batches of events in two, where a reader's cursor or a fold lies within one."""

from collections.abc import Iterable

from trunkline.journal.events import event_count, header_of, kind_of
from trunkline.v1 import event_pb2


def trim(sealed: bytes, after: int) -> bytes:
    """Return what a sealed batch holds behind a sequence, a run of texts split where it must be.

    For the resume path: it parses the batch, unless there is nothing to cut off.
    """
    skipped = after + 1 - header_of(sealed).first_sequence
    if skipped <= 0:
        return sealed
    batch = event_pb2.EventBatch.FromString(sealed)
    events = behind(batch.events, skipped)
    rest = event_pb2.EventBatch(header=batch.header, events=events)
    header = rest.header
    header.first_sequence += skipped
    header.count -= skipped
    header.kinds = _kinds(events)
    if header.HasField("origin"):
        header.origin.first_sequence += skipped
    return rest.SerializeToString()


def parse(sealed: bytes, *, until: int | None = None) -> event_pb2.EventBatch:
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


def behind(events: Iterable[event_pb2.Event], skipped: int) -> list[event_pb2.Event]:
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
        kinds |= kind_of(event).bit
    return kinds
