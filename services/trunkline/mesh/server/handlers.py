"""Handlers of unary methods and of streams of tasks, around sealed batches."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from trunkline.errors import InvalidArgumentError
from trunkline.journal.events import encode_varint
from trunkline.mesh.server.authorization import check_user
from trunkline.mesh.server.request_values import check_values

_Request = TypeVar("_Request", bound=Message)
_Any = TypeVar("_Any")


class UnaryContext(Protocol):
    """The part of gRPC's context that our unary methods use. Calls on a trunk have it, too."""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` when the response is sent."""
        ...

    def peer(self) -> str:
        """Return gRPC's name of the caller's end of the connection."""
        ...


def unary_handler(
    method: Callable[[_Request, Any], Awaitable[Message]], request: type[_Request]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a method that takes a request and a `UnaryContext`."""
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


# A reader far behind gets many messages of this size. A larger one would delay the others.
MESSAGE_BYTES = 64 * 1024

_LENGTH_DELIMITED = 2


class BatchSource(Protocol):
    """The batches of a stream: `TaskWatch` for the events of a task.

    Either call `take` whenever the `on_ready` listener is called, or iterate.
    """

    @property
    def is_over(self) -> bool:
        """True when the last batch was taken."""
        ...

    @property
    def is_at_head(self) -> bool:
        """True if all batches that are ready were taken."""
        ...

    def take(self, limit_bytes: int) -> list[bytes]:
        """Return the batches that are ready, at least one if any is."""
        ...

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever more batches may be ready."""
        ...

    def close(self) -> None:
        """Remove the listener."""
        ...

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Yield the batches that are ready, perhaps none, then new ones until the last."""
        ...


@dataclass(frozen=True, slots=True)
class OpenStream:
    """An open stream: its first response, without batches, and the source of what follows.

    Without a watch the first response is the whole stream, for example a direct reply.
    """

    first_response: bytes
    watch: BatchSource | None = None
    on_sent: Callable[[], None] | None = None
    """Called when the first response is sent. Never called if the reader cancels before."""


@dataclass(frozen=True, slots=True)
class TaskStreamMethod(Generic[_Request]):
    """A method that streams a task, or other batches, over trunks and by plain gRPC."""

    open: Callable[[_Request], Awaitable[OpenStream]]
    """Opens a stream, and raises the errors of the request."""
    request: type[_Request]
    batches_field: int
    """The number of the response's field for batches."""

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler for plain gRPC. Its responses are serialized already."""
        return grpc.unary_stream_rpc_method_handler(
            self._stream, request_deserializer=self.request.FromString
        )

    async def _stream(self, request: _Request, _context: object) -> AsyncIterator[bytes]:
        stream = await self.open(request)
        if stream.watch is None:
            yield stream.first_response
            return
        first_response: bytes | None = stream.first_response
        async for batches in stream.watch:
            for response in encode_responses(
                batches, self.batches_field, first_response=first_response
            ):
                yield response
            if first_response is not None and stream.on_sent is not None:
                stream.on_sent()
            first_response = None


UNREADABLE: Final = object()
"""Stands for a request that can't be read. grpc would answer it with INTERNAL."""


def make_deserializer(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Return a deserializer that returns UNREADABLE instead of raising an error."""

    def deserialize(serialized: bytes) -> object:
        try:
            return parse(serialized)
        # Third-party services may have any parser.
        except Exception:  # noqa: BLE001
            return UNREADABLE

    return deserialize


def check_request(request: _Any) -> _Any:
    """Return a request. InvalidArgumentError: it is UNREADABLE, or has impossible values."""
    if request is UNREADABLE:
        raise unreadable_request()
    if isinstance(request, Message):
        check_values(request)
        check_user(request)
    return request


async def check_requests(requests: AsyncIterator[_Any]) -> AsyncIterator[_Any]:
    """Yield requests. InvalidArgumentError: the next one is malformed."""
    async for request in requests:
        yield check_request(request)


def unreadable_request() -> InvalidArgumentError:
    """Return the error for a request that can't be read."""
    return InvalidArgumentError("request", "can't be read as the method's")


def parse_request(parse: Callable[[bytes], _Request], serialized: bytes) -> _Request:
    """Return the request of a call on a trunk. InvalidArgumentError: it is malformed."""
    try:
        request = parse(serialized)
    except DecodeError:
        raise unreadable_request() from None
    check_values(request)
    check_user(request)
    return request


def encode_responses(
    batches: Sequence[bytes], batches_field: int, *, first_response: bytes | None = None
) -> Iterator[bytes]:
    """Yield the responses for batches that are ready together: one, or several if they are large.

    `first_response` is sent with the first batches. It is sent even if it is empty: the first event
    may take long, and the reader must learn that the stream is open.
    """
    pending = [] if first_response is None else [first_response]
    size_bytes = len(first_response or b"")
    for batch in batches:
        if size_bytes and size_bytes + len(batch) > MESSAGE_BYTES:
            yield b"".join(pending)
            pending, size_bytes = [], 0
        pending += _encode_field(batches_field, batch)
        size_bytes += len(batch)
    if pending:
        yield b"".join(pending)


def _encode_field(number: int, content: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a field's tag, the length of its content, and the content."""
    return bytes((number << 3 | _LENGTH_DELIMITED,)), encode_varint(len(content)), content
