"""Builds and seals batches of events, in the bytes that the journal and the wire share.

New ids of tasks and conversations are made here, too.
"""

import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from google.protobuf import timestamp_pb2
from google.protobuf.message import DecodeError

from trunkline.core.task_states import StateValue
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import event_pb2

# A journal's id, the time in seconds, and 64 random bits.
_ALLOCATED_ID: Final = re.compile("[a-z0-9]{8}-[0-9a-f]{24}", re.ASCII)

_NS_PER_S = 1_000_000_000
# Tag of EventBatch.header (field 1, length-delimited): the header comes first in a sealed batch.
_HEADER_TAG = b"\x0a"
# Tag of EventBatch.events (field 2, length-delimited).
_EVENT_TAG = b"\x12"
# The longest encoding of a length, in bytes.
_MAX_LENGTH_BYTES = 5


class EventKind(IntEnum):
    """The kind of an event: its field number in Event, and its bit number in BatchHeader.kinds."""

    CREATED = 1
    STATUS = 2
    DELTA = 3
    REWOUND = 4
    PLAN = 5
    TOOL_STARTED = 6
    TOOL_FINISHED = 7
    APPROVAL_REQUESTED = 8
    APPROVAL_ANSWERED = 9
    CHILD_STARTED = 10
    CHILD_FINISHED = 11
    ROUTE_DECIDED = 12
    TURN_STARTED = 13
    TOOL_TASK_STARTED = 14
    STEP_STARTED = 15
    STEP_FINISHED = 16

    @property
    def bit(self) -> int:
        """The mask of this kind in BatchHeader.kinds."""
        return 1 << self


_KINDS = {
    field.name: EventKind(field.number) for field in event_pb2.Event.DESCRIPTOR.oneofs[0].fields
}
# Most events are deltas, and looking up a member of an enum is slow.
_DELTA = EventKind.DELTA
# Kinds that change a task's row.
_ROW_KINDS = EventKind.STATUS.bit | EventKind.ROUTE_DECIDED.bit


# Not frozen: making a frozen dataclass takes three times as long, and each append makes one.
@dataclass(slots=True)
class Draft:
    """Serialised events that have no sequences yet."""

    body: bytes
    """The field `events` of an EventBatch, serialised."""
    count: int
    """The number of sequences that the events cover."""
    kinds: int
    """The kinds of the events, as BatchHeader.kinds."""
    origin: event_pb2.Origin | None = None
    row_events: tuple[event_pb2.Event, ...] = ()
    """The events that change the task's row, in order."""

    @property
    def state(self) -> StateValue | None:
        """The task's state after these events, or None if they do not change it."""
        for event in reversed(self.row_events):
            if event.HasField("status"):
                return event.status.status.state
        return None


def event_kind(event: event_pb2.Event) -> EventKind:
    """Return the kind of an event.

    Raises:
        InvalidArgumentError: no field of the event is set.
    """
    name = event.WhichOneof("event")
    if name is None:
        raise InvalidArgumentError("event", "is empty; set one of its fields")
    return _KINDS[name]


def _texts(event: event_pb2.Event) -> Sequence[str]:
    """Return the texts of a delta or of a plan. Other events have no texts."""
    if event.HasField("delta"):
        return event.delta.texts
    return event.plan.texts if event.HasField("plan") else ()


def event_count(event: event_pb2.Event) -> int:
    """Return the number of sequences that an event covers: one for each text, at least one."""
    return len(_texts(event)) or 1


def plan_event(plan_id: str, revision: int, texts: Iterable[str]) -> event_pb2.Event:
    """Return the event that appends texts to a plan."""
    plan = event_pb2.PlanChanged(plan_id=plan_id, revision=revision, texts=texts)
    return event_pb2.Event(plan=plan)


def build_draft(
    events: Sequence[event_pb2.Event], *, origin: event_pb2.Origin | None = None
) -> Draft:
    """Serialise events, once for the journal, its store and the wire.

    Raises:
        InvalidArgumentError: there are no events, or no field of one of them is set.
    """
    if not events:
        raise InvalidArgumentError("events", "must not be empty")
    count = 0
    kinds = 0
    pieces: list[bytes] = []
    for event in events:
        kind = event_kind(event)
        kinds |= 1 << kind
        # Most events are deltas. A call for each of them would be slow.
        count += (len(event.delta.texts) if kind is _DELTA else event_count(event)) or 1
        encoded = event.SerializeToString()
        pieces += (_EVENT_TAG, encode_varint(len(encoded)), encoded)
    row_events: tuple[event_pb2.Event, ...] = ()
    if kinds & _ROW_KINDS:
        row_events = tuple(event for event in events if event_kind(event).bit & _ROW_KINDS)
    return Draft(b"".join(pieces), count, kinds, origin, row_events)


class BatchSealer:
    """Adds headers to the drafts of one commit, which have the same epoch and time."""

    def __init__(self, *, epoch: int, time_ns: int) -> None:
        seconds, nanos = divmod(time_ns, _NS_PER_S)
        # One message for all batches: to change its fields costs a quarter of a new message.
        self._header = event_pb2.BatchHeader(
            epoch=epoch, time=timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos)
        )

    def seal(self, draft: Draft, *, task_id: str, first_sequence: int) -> bytes:
        """Return the batch in its stored and sent form: the header, then the draft's bytes."""
        header = self._header
        header.task_id = task_id
        header.first_sequence = first_sequence
        header.count = draft.count
        header.kinds = draft.kinds
        if draft.origin is None:
            header.ClearField("origin")
        else:
            header.origin.CopyFrom(draft.origin)
        encoded = header.SerializeToString()
        return b"".join((_HEADER_TAG, encode_varint(len(encoded)), encoded, draft.body))


def seal(draft: Draft, *, task_id: str, epoch: int, first_sequence: int, time_ns: int) -> bytes:
    """Seal a single batch; see `BatchSealer`."""
    sealer = BatchSealer(epoch=epoch, time_ns=time_ns)
    return sealer.seal(draft, task_id=task_id, first_sequence=first_sequence)


def parse_header(sealed: bytes) -> event_pb2.BatchHeader:
    """Parse only the header of a sealed batch.

    Raises:
        DecodeError: the bytes are not a sealed batch.
    """
    begin, end = header_span(sealed)
    return event_pb2.BatchHeader.FromString(sealed[begin:end])


def header_span(sealed: bytes) -> tuple[int, int]:
    """Return the start and end of the header in a sealed batch.

    Raises:
        DecodeError: the bytes are not a sealed batch.
    """
    if not sealed.startswith(_HEADER_TAG):
        raise DecodeError("not a sealed batch: it does not begin with a header")
    length = shift = 0
    begin = len(_HEADER_TAG)
    for byte in sealed[begin : begin + _MAX_LENGTH_BYTES]:
        begin += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return begin, begin + length
        shift += 7
    raise DecodeError("not a sealed batch: its header is truncated")


def last_sequence(sealed: bytes) -> int:
    """Return the last sequence that a sealed batch covers.

    Raises:
        DecodeError: the bytes are not a sealed batch.
    """
    header = parse_header(sealed)
    return header.first_sequence + header.count - 1


def encode_varint(value: int) -> bytes:
    """Encode a non-negative integer as protobuf does."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def new_task_id(journal_id: str) -> str:
    """Return a new id for a task of a journal: the journal's id, the time, and 64 random bits."""
    return f"{journal_id}-{time.time_ns() // _NS_PER_S:08x}{secrets.token_hex(8)}"


def is_allocated_id(task_id: str) -> bool:
    """Return whether a task id has the form that `new_task_id` gives it."""
    return _ALLOCATED_ID.fullmatch(task_id) is not None


def parse_journal_id(task_id: str) -> str:
    """Return the id of the journal that a task id begins with."""
    return task_id.partition("-")[0]


def new_context_id() -> str:
    """Return a new id for a conversation: a UUID of version 7, which begins with the time."""
    random_bits = secrets.randbits(74)
    high = (time.time_ns() // 1_000_000) << 16 | 0x7000 | random_bits >> 62
    low = 0x8000_0000_0000_0000 | random_bits & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
