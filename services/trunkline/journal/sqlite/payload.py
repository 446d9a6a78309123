"""Several sealed batches in one blob, each behind its length."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

_FRAME: Final = struct.Struct(">I")


def pack(batches: Iterable[bytes]) -> tuple[bytearray, list[tuple[int, int]]]:
    """Return the blob, and offset and size of each batch in it."""
    payload = bytearray()
    places = []
    for sealed in batches:
        payload += _FRAME.pack(len(sealed))
        places.append((len(payload), len(sealed)))
        payload += sealed
    return payload, places


def frames(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the batches in a blob."""
    offset = 0
    while offset < len(payload):
        (size_bytes,) = _FRAME.unpack_from(payload, offset)
        offset += _FRAME.size
        yield offset, size_bytes
        offset += size_bytes
