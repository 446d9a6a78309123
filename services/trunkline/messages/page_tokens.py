"""Tokens of pages of messages: a position, bound to the account and the filter of the list."""

import base64
import binascii
import hashlib
import struct
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline.messages.store import EnvelopeFilter

MAX_PAGE_SIZE: Final = 1000
_DEFAULT_PAGE_SIZE: Final = 100
_TOKEN: Final = struct.Struct(">Q8s")


def read_page_size(page_size: int) -> int:
    """Return the size of a page; 0 means the default.

    Raises:
        InvalidArgumentError: it is negative.
    """
    if page_size < 0:
        raise InvalidArgumentError("page_size", f"must be 1 to {MAX_PAGE_SIZE}, or 0")
    return min(page_size or _DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def make_page_token(position: int, account: str, query: EnvelopeFilter) -> str:
    """Return the token of the page that begins before a position."""
    token = _TOKEN.pack(position, _digest(account, query))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def read_page_token(token: str, account: str, query: EnvelopeFilter) -> int:
    """Return the position of a token.

    Raises:
        InvalidArgumentError: the token is of another account or filter.
    """
    try:
        padded = token + "=" * (-len(token) % 4)
        position, digest = _TOKEN.unpack(base64.b64decode(padded, altchars="-_", validate=True))
    except (binascii.Error, struct.error, ValueError):
        digest = b""
        position = 0
    if digest != _digest(account, query):
        problem = "is not a token of this list; begin with the first page"
        raise InvalidArgumentError("page_token", problem)
    return int(position)


def _digest(account: str, query: EnvelopeFilter) -> bytes:
    content = account.encode() + b"\0" + query.SerializeToString(deterministic=True)
    return hashlib.sha256(content).digest()[:8]
