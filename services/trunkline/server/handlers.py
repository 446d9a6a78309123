"""Makes handlers of methods."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from trunkline.journal.events import encode_varint
from trunkline.tasks.watch import TaskWatch, WatchFrame
from trunkline.v1 import message_pb2, message_service_pb2, task_service_pb2

_Request = TypeVar("_Request", bound=Message)


def unary_handler(
    method: Callable[[_Request, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Message]],
    request: type[_Request],
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a method that takes one request and gives one response."""
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


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


def encode_watch_responses(frame: WatchFrame) -> Iterator[bytes]:
    """Yield the WatchTaskResponses that carry a frame: one, or several when it is large."""
    response = task_service_pb2.WatchTaskResponse
    return _responses(
        frame,
        snapshot_field=response.SNAPSHOT_FIELD_NUMBER,
        batches_field=response.BATCHES_FIELD_NUMBER,
    )


def encode_message_responses(frame: WatchFrame) -> Iterator[bytes]:
    """Yield the StreamMessageResponses that carry a frame: one, or several when it is large."""
    response = message_service_pb2.StreamMessageResponse
    return _responses(
        frame,
        snapshot_field=response.SNAPSHOT_FIELD_NUMBER,
        batches_field=response.BATCHES_FIELD_NUMBER,
    )


def encode_direct_reply(message: message_pb2.Message) -> bytes:
    """Return the StreamMessageResponse that carries a direct reply."""
    return message_service_pb2.StreamMessageResponse(message=message).SerializeToString()


def _responses(frame: WatchFrame, *, snapshot_field: int, batches_field: int) -> Iterator[bytes]:
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
    return bytes((number << 3 | _LENGTH_DELIMITED,)), encode_varint(len(content)), content
