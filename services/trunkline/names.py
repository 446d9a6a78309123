"""The names of agents and workflows."""

import re
from typing import Final

MAX_NAME_CHARS: Final = 63
NAME_PATTERN: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9_])?"
"""Up to 63 letters, digits, `_`, `-` and `.`, of which the last two stand between other
characters.

So a name is a segment of a URL (RFC 3986, 2.3), of a SPIFFE id (SPIFFE-ID, 2.2) and of a file's
path without escaping, can't be taken for an option of a command, and ends before the full stop of
a sentence.
"""
NAME_RULE: Final = "up to 63 letters, digits, `_`, `-` and `.`; the last two stand between others"
"""The rule for names, for people."""
_NAME: Final = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of an agent or a workflow."""
    return _NAME.fullmatch(text) is not None
