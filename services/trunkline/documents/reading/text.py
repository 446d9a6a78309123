"""Reads plain text and Markdown. One pass over the lines."""

import re

from trunkline.documents.passages import Section
from trunkline.documents.reading.kinds import Extract, decoded, heading
from trunkline.documents.reading.outline import Outline

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_CLOSING = re.compile(r"[ \t]#+[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FRONT_TITLE = re.compile(r"title:[ \t]*(.+)$", re.IGNORECASE)
# Front matter is short; a file that begins with a rule has none.
_FRONT_LINES = 100


def read_text(content: bytes) -> Extract:
    """Read plain text: one section."""
    text = decoded(content)
    return Extract("", [Section(text, line=1)] if text.strip() else [])


def read_markdown(content: bytes) -> Extract:
    """Read Markdown: a section for each heading. The title is the front matter's, or the first."""
    return _Markdown(decoded(content)).read()


class _Markdown:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._title = ""
        self._outline = Outline()
        self._gathered: list[str] = []
        self._begins = 1

    def read(self) -> Extract:
        fence = ""
        for number, line in enumerate(self._lines[self._front() :], start=self._begins):
            if found := _FENCE.match(line):
                if not fence:
                    fence = found[1]
                elif found[1].startswith(fence) and not line.strip().strip(fence[0]):
                    fence = ""
            elif not fence and self._is_heading(line, number):
                continue
            self._gathered.append(line)
        self._close()
        self._outline.end()
        sections = self._outline.sections
        first = next(iter(sections), None)
        return Extract(
            self._title or (first.headings[0] if first and first.headings else ""), sections
        )

    def _front(self) -> int:
        """Pass over front matter, and take its title."""
        if self._lines[0].strip() != "---":
            return 0
        for number, line in enumerate(self._lines[1:_FRONT_LINES], start=1):
            if line.strip() in {"---", "..."}:
                self._begins = number + 2
                return number + 1
            if found := _FRONT_TITLE.match(line):
                self._title = heading(found[1].strip("\"' "))
        self._title = ""
        return 0

    def _is_heading(self, line: str, number: int) -> bool:
        if found := _ATX.match(line):
            self._open(len(found[1]), _CLOSING.sub("", found[2] or ""), number)
            return True
        above = self._gathered[-1].strip() if self._gathered else ""
        # One line of text above it, or the underline is a rule, or the end of a list.
        is_alone = len(self._gathered) < 2 or not self._gathered[-2].strip()
        if above and is_alone and (found := _UNDERLINE.match(line)) and above[0] not in "-*>|":
            self._gathered.pop()
            self._open(1 if found[1][0] == "=" else 2, above, number, height=2)
            return True
        return False

    def _open(self, level: int, text: str, number: int, *, height: int = 1) -> None:
        """Begin a section below a heading of some lines, of which `number` is the last."""
        self._close()
        self._outline.head(level, text, number + 1 - height)
        self._begins = number + 1

    def _close(self) -> None:
        self._outline.add("\n".join(self._gathered), self._begins)
        self._gathered = []
