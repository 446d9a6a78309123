"""Texts that every store accepts."""

import re
from typing import Final

from trunkline.errors import InvalidArgumentError

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Return whether every store accepts a text: it has no NUL and no half of a surrogate pair."""
    return _UNSTORABLE.search(text) is None


def check_texts(**texts: str) -> None:
    """Check texts that are columns of a store, by the names of their fields.

    Raises:
        InvalidArgumentError: a text can't be stored.
    """
    for field_name, text in texts.items():
        if not is_storable(text):
            raise InvalidArgumentError(field_name, "must have no NUL and no unpaired surrogate")
