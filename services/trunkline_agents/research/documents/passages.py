"""The parts of documents: sections as they are read, passages as they are searched."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PASSAGE_CHARS = 1200
"""Longest passage: two or three paragraphs."""
# The end of a sentence. The escapes are Chinese and Japanese full stops.
_SENTENCE = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+")


@dataclass(frozen=True, slots=True)
class Section:
    """The text below one heading, or on one page."""

    text: str
    headings: tuple[str, ...] = ()
    """From the outermost to the innermost."""
    page: int | None = None
    """Counted from 1."""
    line: int | None = None
    """The number of the text's first line, from 1, or None for formats without lines."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit of search and of quotation: some paragraphs, and their place."""

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A document in the store."""

    path: str
    """The path of its file."""
    name: str
    """Its path from the added folder on, including that folder's name. Sources show it."""
    title: str
    media_type: str
    size_bytes: int
    modified_ns: int
    page_count: int = 0
    passage_count: int = 0
    added_at: str = ""
    """RFC 3339, UTC."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A passage that matches a query."""

    title: str
    name: str
    path: str
    text: str
    headings: tuple[str, ...]
    page: int | None
    line: int | None
    score: float
    """A higher score is better. Scores are comparable only within one search."""

    @property
    def place(self) -> str:
        """Its page, section and line in the document, for people; may be empty."""
        parts = []
        if self.page is not None:
            parts.append(f"page {self.page}")
        if self.headings and self.headings[-1] != self.title:
            parts.append(f'section "{self.headings[-1]}"')
        if self.line is not None:
            parts.append(f"line {self.line}")
        return ", ".join(parts)


def split_passages(sections: Sequence[Section]) -> Iterator[Passage]:
    """Split sections into passages: at blank lines, else between sentences, else anywhere."""
    for section in sections:
        for text, line in _split_section(section):
            yield Passage(text, section.headings, section.page, line)


def _split_section(section: Section) -> Iterator[tuple[str, int | None]]:
    """Yield the texts of a section's passages, and their first lines."""
    buffer = ""
    first_line: int | None = None
    for paragraph, line in _paragraphs(section):
        for piece in _split_paragraph(paragraph):
            if buffer and len(buffer) + len(piece) + 2 > PASSAGE_CHARS:
                yield buffer, first_line
                buffer = ""
            if not buffer:
                first_line = line
            buffer = f"{buffer}\n\n{piece}" if buffer else piece
    if buffer:
        yield buffer, first_line


def _paragraphs(section: Section) -> Iterator[tuple[str, int | None]]:
    lines: list[str] = []
    first = 0
    for number, line in enumerate([*section.text.split("\n"), ""]):
        if line.strip():
            if not lines:
                first = number
            lines.append(line.rstrip())
        elif lines:
            yield "\n".join(lines), None if section.line is None else section.line + first
            lines = []


def _split_paragraph(paragraph: str) -> Iterator[str]:
    """Yield a paragraph, or groups of its sentences if it is too long. No text is dropped."""
    if len(paragraph) <= PASSAGE_CHARS:
        yield paragraph
        return
    buffer = ""
    for sentence in _SENTENCE.split(paragraph):
        for start in range(0, len(sentence), PASSAGE_CHARS):
            piece = sentence[start : start + PASSAGE_CHARS]
            if buffer and len(buffer) + len(piece) + 1 > PASSAGE_CHARS:
                yield buffer
                buffer = ""
            buffer = f"{buffer} {piece}" if buffer else piece
    if buffer:
        yield buffer
