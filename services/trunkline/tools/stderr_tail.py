"""The stderr of an MCP server: lines without secrets for the log, and the tail for errors."""

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

from trunkline.core.printable import remove_terminal_sequences

STDERR_LINE_LIMIT_BYTES: Final = 64 * 1024
"""A longer line is dropped, since a cut may have split a secret in it."""
_LOGGED_CHARS = 500
_TAIL_LINES = 3
_TAIL_CHARS = 300
# Shorter values are ordinary words and numbers, and no secrets.
_SECRET_CHARS = 4
_FOLDERS = re.compile(r"(?<![\w./])/(?:[^\s/'\":]+/)+")
_TITLE = "Traceback (most recent call last)"


class StderrTail:
    """The last lines of a server's stderr. The values of its `env` entry are redacted."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        lines = {line.strip() for secret in secrets for line in secret.splitlines()}
        # The longest first, since one may be part of another.
        self._secrets = sorted((line for line in lines if len(line) >= _SECRET_CHARS), key=len)[
            ::-1
        ]
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)

    def add_line(self, line: bytes) -> str:
        """Add a line, and return it in the form for the log."""
        text = self.redact(line)
        if _is_informative(text):
            # Errors are shown to callers, so local paths are removed.
            self._lines.append(_FOLDERS.sub("", text)[:_TAIL_CHARS])
        return text[:_LOGGED_CHARS]

    def redact(self, line: bytes) -> str:
        """Return a line as printable text without secrets."""
        if len(line) > STDERR_LINE_LIMIT_BYTES:
            return "[a long line]"
        text = remove_terminal_sequences(line.decode(errors="replace"))
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        if not text.isprintable():
            text = "".join(char if char.isprintable() else " " for char in text)
        return text.rstrip()

    def last_lines(self) -> str:
        """Return the last informative lines, joined and of bounded length; possibly empty."""
        text = " | ".join(self._lines)
        return text if len(text) <= _TAIL_CHARS else f"…{text[1 - _TAIL_CHARS :]}"


def _is_informative(text: str) -> bool:
    """Return True for a line with a word that is not a traceback's title or an indented frame."""
    return not text.startswith(("\t", " ", _TITLE)) and re.search(r"[^\W_]{2}", text) is not None
