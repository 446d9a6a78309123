"""Streams of batches that are serialized already, such as the events of a task."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import Message

from trunkline.journal.events import encode_varint

# A reader far behind gets many messages of this size. A larger one would delay the others.
MESSAGE_BYTES: Final = 64 * 1024

_LENGTH_DELIMITED: Final = 2


class BatchSource(Protocol):
    """The batches of a stream: `TaskWatch` for the events of a task.

    Either call `take_ready` or `take` whenever the `on_ready` listener is called, or iterate.
    """

    @property
    def is_over(self) -> bool:
        """True when the last batch was taken."""
        ...

    @property
    def is_at_head(self) -> bool:
        """True if all batches that were ready at the last call were taken."""
        ...

    def take_ready(self, limit_bytes: int) -> list[bytes] | None:
        """Return the next batches if they are in memory.

        Otherwise the result is None, and only `take` knows whether there are any.
        """
        ...

    async def take(self, limit_bytes: int) -> list[bytes]:
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
class BatchStream:
    """The answer of a method of `trunk_wire.methods.BATCH_FIELDS`: a response, then batches.

    The carrier of the call takes the batches from the source, serialized as the journal has them.
    Without a source the first response is the whole stream, for example a direct reply.
    """

    first_response: Message
    source: BatchSource | None = None
    on_sent: Callable[[], None] | None = None
    """Called when the first response is sent. Never called if the reader cancels before."""

    async def encode(self, batches_field: int) -> AsyncIterator[bytes]:
        """Yield the serialized responses of a plain call.

        `batches_field` is the number of the responses' field for batches.
        """
        if self.source is None:
            yield self.first_response.SerializeToString()
            return
        first_response: bytes | None = self.first_response.SerializeToString()
        async for batches in self.source:
            for response in encode_responses(batches, batches_field, first_response=first_response):
                yield response
            if first_response is not None and self.on_sent is not None:
                self.on_sent()
            first_response = None


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
