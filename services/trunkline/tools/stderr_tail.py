"""What an MCP server says on stderr: lines that may be logged, and the last of them."""

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

STDERR_LINE_LIMIT_BYTES: Final = 64 * 1024
"""Of a longer line nothing is passed on: a secret in it may have been cut in two."""
_LOGGED_CHARS = 500
_KEPT_LINES = 3
_KEPT_CHARS = 300
# Shorter values are words and numbers that anybody says.
_SECRET_CHARS = 4
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
_FOLDERS = re.compile(r"(?<![\w./])/(?:[^\s/'\":]+/)+")
_TITLE = "Traceback (most recent call last)"


class StderrTail:
    """Hears a server's lines. What its entry sets in its environment is in none that it gives."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        lines = {line.strip() for secret in secrets for line in secret.splitlines()}
        # The longest first: one may be a part of another.
        self._secrets = sorted((one for one in lines if len(one) >= _SECRET_CHARS), key=len)[::-1]
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)

    def add_line(self, line: bytes) -> str:
        """Take a line; return it as it may be logged."""
        if len(line) > STDERR_LINE_LIMIT_BYTES:
            return "[a long line]"
        text = _ESCAPES.sub("", line.decode(errors="replace"))
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        if not text.isprintable():
            text = "".join(one if one.isprintable() else " " for one in text)
        text = text.rstrip()
        if _says_something(text):
            # Where our folders are is nobody's business who only wants an answer.
            self._kept.append(_FOLDERS.sub("", text)[:_KEPT_CHARS])
        return text[:_LOGGED_CHARS]

    def last_lines(self) -> str:
        """Return the last lines that say something, as one of bounded length; it may be empty."""
        text = " | ".join(self._kept)
        return text if len(text) <= _KEPT_CHARS else f"…{text[1 - _KEPT_CHARS :]}"


def _says_something(text: str) -> bool:
    """What is indented says where something happened, not what."""
    return not text.startswith(("\t", " ", _TITLE)) and re.search(r"[^\W_]{2}", text) is not None
