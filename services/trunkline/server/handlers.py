"""Handlers of unary methods, and the encoding of event streams around sealed batches."""

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
    """Return the handler of a method with one request and one response."""
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


# A reader far behind gets many messages of this size. A larger one would delay the others.
MESSAGE_BYTES = 64 * 1024

_LENGTH_DELIMITED = 2


@dataclass(frozen=True, slots=True)
class OpenStream:
    """An open stream: its first response, without batches, and the watch of what follows.

    Without a watch the first response is all there is: a direct reply.
    """

    first: bytes
    watch: TaskWatch | None


StreamOpener: TypeAlias = Callable[[bytes], Awaitable[OpenStream]]
"""Opens a stream from its serialized request, and raises the errors of the request."""


def encode_watch_responses(frame: WatchFrame) -> Iterator[bytes]:
    """Yield the WatchTaskResponses of a frame: one, or several for a large frame."""
    response = task_service_pb2.WatchTaskResponse
    return _encode_responses(
        frame,
        snapshot_field=response.SNAPSHOT_FIELD_NUMBER,
        batches_field=response.BATCHES_FIELD_NUMBER,
    )


def encode_message_responses(frame: WatchFrame) -> Iterator[bytes]:
    """Yield the StreamMessageResponses of a frame: one, or several for a large frame."""
    response = message_service_pb2.StreamMessageResponse
    return _encode_responses(
        frame,
        snapshot_field=response.SNAPSHOT_FIELD_NUMBER,
        batches_field=response.BATCHES_FIELD_NUMBER,
    )


def encode_direct_reply(message: message_pb2.Message) -> bytes:
    """Return the StreamMessageResponse of a direct reply."""
    return message_service_pb2.StreamMessageResponse(message=message).SerializeToString()


def _encode_responses(
    frame: WatchFrame, *, snapshot_field: int, batches_field: int
) -> Iterator[bytes]:
    pending: list[bytes] = []
    size_bytes = 0
    if frame.snapshot is not None:
        content = frame.snapshot.SerializeToString()
        pending += _encode_field(snapshot_field, content)
        size_bytes = len(content)
    for batch in frame.batches:
        if pending and size_bytes + len(batch) > MESSAGE_BYTES:
            yield b"".join(pending)
            pending, size_bytes = [], 0
        pending += _encode_field(batches_field, batch)
        size_bytes += len(batch)
    if pending:
        yield b"".join(pending)


def _encode_field(number: int, content: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a field's tag, the length of its content, and the content."""
    return bytes((number << 3 | _LENGTH_DELIMITED,)), encode_varint(len(content)), content
