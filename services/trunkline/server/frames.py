"""Encodes what streams of events send, around batches that are serialised already."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from trunkline.journal.varint import varint
from trunkline.tasks.watch import Frame, TaskWatch
from trunkline.v1 import message_pb2, message_service_pb2, task_service_pb2

# A reader far behind gets many messages of this size, none so large that it holds up the others.
MESSAGE_BYTES = 64 * 1024

_LENGTH_DELIMITED = 2


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream of events that has begun: its first response without batches, and what follows.

    A direct reply is followed by nothing.
    """

    first: bytes
    watch: TaskWatch | None


# Begins a stream from its serialised request; errors that are the request's show here.
StreamOpener: TypeAlias = Callable[[bytes], Awaitable[OpenStream]]


def watch_responses(frame: Frame) -> Iterator[bytes]:
    """Yield the WatchTaskResponses that carry a frame: one, or several when it is large."""
    response = task_service_pb2.WatchTaskResponse
    return _responses(
        frame,
        snapshot_field=response.SNAPSHOT_FIELD_NUMBER,
        batches_field=response.BATCHES_FIELD_NUMBER,
    )


def stream_responses(frame: Frame) -> Iterator[bytes]:
    """Yield the StreamMessageResponses that carry a frame: one, or several when it is large."""
    response = message_service_pb2.StreamMessageResponse
    return _responses(
        frame,
        snapshot_field=response.SNAPSHOT_FIELD_NUMBER,
        batches_field=response.BATCHES_FIELD_NUMBER,
    )


def reply_response(message: message_pb2.Message) -> bytes:
    """Return the StreamMessageResponse that carries a direct reply."""
    return message_service_pb2.StreamMessageResponse(message=message).SerializeToString()


def _responses(frame: Frame, *, snapshot_field: int, batches_field: int) -> Iterator[bytes]:
    pending: list[bytes] = []
    size_bytes = 0
    if frame.snapshot is not None:
        content = frame.snapshot.SerializeToString()
        pending += _field(snapshot_field, content)
        size_bytes = len(content)
    for batch in frame.batches:
        if pending and size_bytes + len(batch) > MESSAGE_BYTES:
            yield b"".join(pending)
            pending, size_bytes = [], 0
        pending += _field(batches_field, batch)
        size_bytes += len(batch)
    if pending:
        yield b"".join(pending)


def _field(number: int, content: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a field's tag, its content's length, and the content."""
    return bytes((number << 3 | _LENGTH_DELIMITED,)), varint(len(content)), content
