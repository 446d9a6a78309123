"""Texts that every store accepts."""

import re
from typing import Final

from trunkline.errors import InvalidArgumentError

TEXT_LIMIT_BYTES: Final = 850
"""The longest text that is part of a key of a table. PostgreSQL's index takes 2,704 bytes for all
texts of a key, of which there are three at most."""
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Return whether every store accepts a text: it has no NUL and no half of a surrogate pair."""
    return _UNSTORABLE.search(text) is None


def check_texts(**texts: str) -> None:
    """Check texts that are part of a key of a store, by the names of their fields.

    One text that a store refuses would fail all writes of its transaction.

    Raises:
        InvalidArgumentError: a text can't be stored, or it is longer than TEXT_LIMIT_BYTES.
    """
    for field_name, text in texts.items():
        if not is_storable(text):
            raise InvalidArgumentError(field_name, "must have no NUL and no unpaired surrogate")
        if len(text.encode()) > TEXT_LIMIT_BYTES:
            raise InvalidArgumentError(field_name, f"is longer than {TEXT_LIMIT_BYTES:,} bytes")
