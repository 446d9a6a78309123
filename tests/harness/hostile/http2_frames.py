"""Frames of HTTP/2 (RFC 9113) and header fields (RFC 7541), written by hand to break rules."""

from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _CONTINUATION = 0, 1, 3, 4, 9
_END_STREAM, _END_HEADERS = 1, 4
_MAX_FRAME_BYTES: Final = 16_384
_CANCEL: Final = (8).to_bytes(4, "big")
# POST and http are entries of the static table.
_POST_HTTP: Final = b"\x83\x86"

OPENING: Final = _PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""The begin of a connection: the preface and empty settings. It confirms no settings of the server,
so that grpc does not apply its limit of headers."""


def header(name: str, value: str) -> bytes:
    """Return a header field without an index."""
    return b"\x00" + b"".join(
        len(text).to_bytes(1, "big") + text.encode() for text in (name, value)
    )


def call_headers(method: str) -> bytes:
    """Return the header fields of a gRPC call."""
    fields = {
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return _POST_HTTP + b"".join(header(name, value) for name, value in fields.items())


def long_call(headers: bytes, *, has_end: bool) -> bytes:
    """Return a call with headers of any length, which may have no end."""
    pieces = [
        headers[start : start + _MAX_FRAME_BYTES]
        for start in range(0, len(headers), _MAX_FRAME_BYTES)
    ]
    last = len(pieces) - 1 if has_end else len(pieces)
    return b"".join(
        _frame(
            _CONTINUATION if number else _HEADERS, _END_HEADERS if number == last else 0, 1, piece
        )
        for number, piece in enumerate(pieces)
    )


def reset_calls(headers: bytes, first: int, count: int) -> bytes:
    """Return complete calls without a message, each reset at once. The first has this number."""
    return b"".join(
        _frame(_HEADERS, _END_HEADERS, 2 * number + 1, headers)
        + _frame(_DATA, _END_STREAM, 2 * number + 1, b"\x00" * 5)
        + _frame(_RESET, 0, 2 * number + 1, _CANCEL)
        for number in range(first, first + count)
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload
