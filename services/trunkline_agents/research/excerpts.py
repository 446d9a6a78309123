"""Excerpts of a text: its sentences, list items and table rows that fit a question."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from trunkline_agents.research.documents.search import Term

_EXCERPT_CHARS: Final = 420
# The longest quotation of a paragraph before its best sentence.
_OPENING_CHARS: Final = 120
_PARAGRAPH_BREAK = re.compile(r"\n\n+")
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+")
_BULLET = re.compile(r"[-*+•]\s+\S")
_NUMBERED = re.compile(r"\d{1,2}[.)]\s+\S")
# The line below the head of a Markdown table, and the dashes in it.
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_DASHES = re.compile(r"-{4,}")
# Words with the same first characters count as one word: leave, leaves, leaving.
_STEM_CHARS: Final = 5
_NUMBER_POINTS: Final = 2.0

_Kind = Literal["sentence", "item", "head", "row"]


@dataclass(frozen=True, slots=True)
class _Unit:
    """The smallest part that is quoted."""

    kind: _Kind
    text: str
    """One line, or the two lines of the head of a table."""
    paragraph: int
    head: str = ""
    """The head of the table of a row."""


def extract_excerpt(text: str, terms: Sequence[Term]) -> str:
    """Return the part of a text that has most of these words.

    The excerpt also has the beginning of the paragraph if it is short. Prose is on one line. Items
    of lists and rows of tables are Markdown, on separate lines, and an excerpt that begins with an
    item or a row begins with a line break.
    """
    units = [
        unit
        for number, paragraph in enumerate(_PARAGRAPH_BREAK.split(text))
        for unit in _split_paragraph(paragraph, number)
    ]
    if not units:
        return ""
    points = [sum(_score(term, unit.text.casefold()) for term in terms) for unit in units]
    best = points.index(max(points))
    first = _find_opening(units, best)
    excerpt, last = "" if first == 0 else "…", ""
    if units[first].head:
        excerpt, last = f"{excerpt}\n\n{units[first].head}", "head"
    end = first
    for unit in units[first:]:
        longer = f"{excerpt}{_break_between(last, unit.kind)}{unit.text}"
        if end > best and len(longer) > _EXCERPT_CHARS:
            break
        excerpt, last, end = longer, unit.kind, end + 1
    is_cut = len(excerpt) > _EXCERPT_CHARS or end < len(units)
    # Behind a row, it would be another cell.
    more = ("\n\n…" if last == "row" else " …") if is_cut else ""
    return f"{excerpt[:_EXCERPT_CHARS].rstrip()}{more}".removeprefix(" ")


def _split_paragraph(paragraph: str, number: int) -> Iterator[_Unit]:
    """Yield the sentences of a paragraph, or the items and rows of the lists and tables in it."""
    head = ""
    blocks = _split_blocks(paragraph)
    for index, block in enumerate(blocks):
        text = " ".join(block.split())
        if text.startswith("|"):
            following = blocks[index + 1].strip() if index + 1 < len(blocks) else ""
            if _RULE.fullmatch(following):
                head = f"{text}\n{_DASHES.sub('---', ' '.join(following.split()))}"
                yield _Unit("head", head, number)
            elif not _RULE.fullmatch(text):
                yield _Unit("row", text, number, head)
        elif _starts_item(text) and len(text) <= _EXCERPT_CHARS:
            yield _Unit("item", text, number)
        else:
            for sentence in filter(None, _SENTENCE_BREAK.split(text)):
                yield _Unit("sentence", sentence, number)


def _split_blocks(paragraph: str) -> list[str]:
    """Return prose, items and rows of a paragraph, each with the lines on which it continues."""
    blocks: list[list[str]] = []
    for line in filter(None, (line.strip() for line in paragraph.split("\n"))):
        before = blocks[-1][0] if blocks else ""
        # A line of prose may begin with a number and a full stop.
        is_item = _BULLET.match(line) or (
            _NUMBERED.match(line) and (not before or _starts_item(before))
        )
        if not before or is_item or line.startswith("|") or before.startswith("|"):
            blocks.append([line])
        else:
            blocks[-1].append(line)
    return [" ".join(lines) for lines in blocks]


def _starts_item(line: str) -> bool:
    return bool(_BULLET.match(line) or _NUMBERED.match(line))


def _find_opening(units: Sequence[_Unit], best: int) -> int:
    """Return the first unit of a unit's paragraph, or the unit if the first is too far away."""
    first = best
    while first > 0 and units[first - 1].paragraph == units[best].paragraph:
        first -= 1
    length = sum(len(unit.text) for unit in units[first:best])
    return first if length <= _OPENING_CHARS else best


def _break_between(before: str, kind: _Kind) -> str:
    """Return the separator of two units. `before` is the kind of the first unit, or ""."""
    if kind == "sentence":
        return " " if before in ("", "sentence") else "\n\n"
    if kind == "item":
        return "\n\n" if before == "row" else "\n"
    return "\n" if kind == "row" and before in ("head", "row") else "\n\n"


def _score(term: Term, words: str) -> float:
    """Return the points of a unit for a word that it has, or 0."""
    if term.is_number:
        # Not the 3 of 30.
        found = re.search(rf"(?<![\w.]){re.escape(term.word)}(?!\w|[.,]\d)", words)
        return _NUMBER_POINTS if found else 0.0
    return float(term.word[:_STEM_CHARS] in words)
