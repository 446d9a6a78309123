"""Lengths as protobuf writes them, for those who put messages together from bytes."""


def varint(value: int) -> bytes:
    """Encode a length; most take one byte or two."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def sized(part: bytes) -> bytes:
    """Return bytes behind their length."""
    return varint(len(part)) + part
