"""The kinds of files that can be read, and what reading one gives."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeAlias

from trunkline.documents.passages import Section

FILE_LIMIT_BYTES = 64 * 1024 * 1024
"""Larger files are refused."""
TEXT_LIMIT_CHARS = 20_000_000
"""A file that gives more text is refused: no person wrote it, whatever its size on disk."""
SECTION_LIMIT = 100_000
HEADING_CHARS = 200
"""A longer heading is cut."""

# Terminals obey some of them. Tabs and ends of lines stay.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")
_KINDS = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".mdx": "text/markdown",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".rst": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".pdf": "application/pdf",
}


class Unreadable(Exception):  # noqa: N818 it says what the file is
    """A file can't be read; the text says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The text of a document."""

    title: str
    """Empty: it says none."""
    sections: list[Section]
    page_count: int = 0


Read: TypeAlias = Callable[[bytes], Extract]


def kind_of(path: PurePath) -> str:
    """Return the media type of a file by its name; empty: none that is known."""
    return _KINDS.get(path.suffix.lower(), "")


def decoded(content: bytes) -> str:
    """Return content as text: UTF-8, UTF-16 that says so, else what Western Europe used before.

    Raises:
        Unreadable: it is no text.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("cp1252", errors="replace")
    if "\0" in text:
        raise Unreadable("it is no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def clean(text: str) -> str:
    """Leave out what is no text: control characters, and halves of characters."""
    return _NO_TEXT.sub("", text)


def heading(text: str) -> str:
    """Return a heading on one line of bounded length."""
    return " ".join(clean(text).split())[:HEADING_CHARS]
