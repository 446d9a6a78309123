"""Packs several messages into one row."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

_LENGTH_PREFIX: Final = struct.Struct(">I")


def pack_batches(batches: Iterable[bytes]) -> tuple[bytearray, list[tuple[int, int]]]:
    """Pack batches into one payload. Return it with the offset and size of each batch."""
    payload = bytearray()
    spans = []
    for sealed in batches:
        payload += _LENGTH_PREFIX.pack(len(sealed))
        spans.append((len(payload), len(sealed)))
        payload += sealed
    return payload, spans


def unpack_spans(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offset and size of each batch in a payload."""
    offset = 0
    while offset < len(payload):
        (size_bytes,) = _LENGTH_PREFIX.unpack_from(payload, offset)
        offset += _LENGTH_PREFIX.size
        yield offset, size_bytes
        offset += size_bytes
