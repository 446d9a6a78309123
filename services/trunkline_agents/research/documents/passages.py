"""What documents are made of: sections as a reader finds them, passages as they are searched."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PASSAGE_CHARS = 1200
"""A passage is at most so long: two or three paragraphs."""
# The end of a sentence; the escapes are the marks of Chinese and Japanese.
_SENTENCE = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+")


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a document under one heading, or on one page."""

    text: str
    headings: tuple[str, ...] = ()
    """From the outermost to the one above the text."""
    page: int | None = None
    """Counted from 1."""
    line: int | None = None
    """Where the text begins, counted from 1; None where lines mean nothing to people."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What is found and quoted: some paragraphs, and where they stand."""

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was added."""

    path: str
    """Where its file is."""
    name: str
    """Its path below the folder that was added, that folder's name included: what sources say."""
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
    """A passage that was searched for."""

    title: str
    name: str
    path: str
    text: str
    headings: tuple[str, ...]
    page: int | None
    line: int | None
    score: float
    """Comparable within one search only; more is better."""

    @property
    def place(self) -> str:
        """Where in its document it stands, for people: page, section, line; may be empty."""
        said = []
        if self.page is not None:
            said.append(f"page {self.page}")
        if self.headings and self.headings[-1] != self.title:
            said.append(f'section "{self.headings[-1]}"')
        if self.line is not None:
            said.append(f"line {self.line}")
        return ", ".join(said)


def split_passages(sections: Sequence[Section]) -> Iterator[Passage]:
    """Cut sections into passages: at blank lines, else between sentences, else anywhere."""
    for section in sections:
        for text, line in _pieces(section):
            yield Passage(text, section.headings, section.page, line)


def _pieces(section: Section) -> Iterator[tuple[str, int | None]]:
    """The texts of a section's passages, and the lines where they begin."""
    gathered = ""
    begins: int | None = None
    for paragraph, line in _paragraphs(section):
        for piece in _cut(paragraph):
            if gathered and len(gathered) + len(piece) + 2 > PASSAGE_CHARS:
                yield gathered, begins
                gathered = ""
            if not gathered:
                begins = line
            gathered = f"{gathered}\n\n{piece}" if gathered else piece
    if gathered:
        yield gathered, begins


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


def _cut(paragraph: str) -> Iterator[str]:
    """A paragraph, or where it is too long its sentences, gathered; nothing is left out."""
    if len(paragraph) <= PASSAGE_CHARS:
        yield paragraph
        return
    gathered = ""
    for sentence in _SENTENCE.split(paragraph):
        for start in range(0, len(sentence), PASSAGE_CHARS):
            piece = sentence[start : start + PASSAGE_CHARS]
            if gathered and len(gathered) + len(piece) + 1 > PASSAGE_CHARS:
                yield gathered
                gathered = ""
            gathered = f"{gathered} {piece}" if gathered else piece
    if gathered:
        yield gathered
