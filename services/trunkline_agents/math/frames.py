"""The worker's wire: a JSON object behind its length in four bytes, big-endian."""

import json
from typing import Any, BinaryIO

# Far above any answer: those are bounded by the operations.
MAX_FRAME_BYTES = 1 << 20
LENGTH_BYTES = 4

Frame = dict[str, Any]


class BrokenFrameError(Exception):
    """The other side stopped in the middle of a frame, or does not speak in frames."""


def packed(frame: Frame) -> bytes:
    """The bytes of a frame."""
    body = json.dumps(frame, separators=(",", ":")).encode()
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def body_length(head: bytes) -> int:
    """How many bytes follow the length.

    Raises:
        BrokenFrameError: more than any frame may have.
    """
    length = int.from_bytes(head, "big")
    if length > MAX_FRAME_BYTES:
        raise BrokenFrameError(f"a frame of {length} bytes")
    return length


def unpacked(body: bytes) -> Frame:
    """The frame of a body.

    Raises:
        BrokenFrameError: it is not a JSON object.
    """
    try:
        frame = json.loads(body)
    except ValueError as error:
        raise BrokenFrameError("not JSON") from error
    if not isinstance(frame, dict):
        raise BrokenFrameError("not an object")
    return frame


def read_frame(stream: BinaryIO) -> Frame | None:
    """Read one frame, blocking; None at the end of the stream.

    Raises:
        BrokenFrameError: the stream ended inside a frame, or holds something else.
    """
    head = stream.read(LENGTH_BYTES)
    if not head:
        return None
    body = stream.read(body_length(head))
    if len(head) < LENGTH_BYTES or len(body) < int.from_bytes(head, "big"):
        raise BrokenFrameError("the stream ended inside a frame")
    return unpacked(body)
