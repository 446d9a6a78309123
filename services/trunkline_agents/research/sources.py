"""The result of a search: text that stands alone, and the same as data."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trunkline_agents.research.documents.search import Term, parse_terms

TITLE_CHARS = 200
TEXT_CHARS = 2000
"""Longest text of one source."""
_EXCERPT_CHARS = 420
# What is quoted of a paragraph before its best sentence.
_OPENING_CHARS = 120
_PARAGRAPH_BREAK = re.compile(r"\n\n+")
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+")
# Words with the same first characters count as one word: leave, leaves, leaving.
_STEM_CHARS = 5
_NUMBER_POINTS = 2.0
_SYNONYM_POINTS = 0.75


@dataclass(frozen=True, slots=True)
class Source:
    """A text that can be quoted, and its location."""

    title: str
    location: str
    """A URL, or a document's name."""
    text: str
    place: str = ""
    """The page, section or line; of a paper, its authors and year."""

    @property
    def citation(self) -> str:
        """One line by which people find it."""
        title = " ".join(self.title.split())[:TITLE_CHARS]
        name = "" if title == self.location else title
        line = ", ".join(filter(None, (name or self.location, self.place)))
        return f"{line}, {self.location}" if name else line


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The sources that a search found."""

    query: str
    sources: tuple[Source, ...]
    unavailable: tuple[str, ...] = ()
    """Sentences about what could not be searched, and how to enable it."""
    is_fallback: bool = False
    """The sources are documents, because the wanted source can't be searched."""

    @property
    def text(self) -> str:
        """The result for people: an excerpt of each source, and the list of sources."""
        terms = parse_terms(self.query)
        excerpts = [
            f"[{number}] {extract_sentences(source.text, terms)}"
            for number, source in enumerate(self.sources, start=1)
        ]
        listed = [
            f"[{number}] {source.citation}" for number, source in enumerate(self.sources, start=1)
        ]
        head = [" ".join(self.unavailable)] if self.unavailable else []
        if self.is_fallback:
            head.append("From the documents instead:")
        return "\n\n".join((*head, *excerpts, "\n".join(("Sources:", *listed))))

    @property
    def data(self) -> dict[str, Any]:
        """The result by the tools' output schema."""
        return {
            "query": self.query,
            "sources": [
                {
                    "title": source.title,
                    "location": source.location,
                    "place": source.place,
                    "citation": source.citation,
                    "text": source.text,
                }
                for source in self.sources
            ],
            "unavailable": list(self.unavailable),
        }


def extract_sentences(text: str, terms: Sequence[Term]) -> str:
    """Return the sentences of a text that have most of these words, on one line.

    What a paragraph says before them is quoted, too, if it is short.
    """
    paragraphs = [_split_sentences(paragraph) for paragraph in _PARAGRAPH_BREAK.split(text)]
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    if not sentences:
        return ""
    points = [
        sum(_score(term, sentence) for term in terms)
        for sentence in (sentence.casefold() for sentence in sentences)
    ]
    last = points.index(max(points))
    first = _find_opening(paragraphs, last)
    excerpt = " ".join(sentences[first : last + 1])
    for sentence in sentences[last + 1 :]:
        if len(excerpt) + len(sentence) + 1 > _EXCERPT_CHARS:
            break
        excerpt, last = f"{excerpt} {sentence}", last + 1
    is_cut = len(excerpt) > _EXCERPT_CHARS
    start = "" if first == 0 else "… "
    end = " …" if is_cut or last + 1 < len(sentences) else ""
    return f"{start}{excerpt[:_EXCERPT_CHARS].rstrip()}{end}"


def _split_sentences(paragraph: str) -> list[str]:
    sentences = _SENTENCE_BREAK.split(paragraph)
    return [" ".join(sentence.split()) for sentence in sentences if sentence.strip()]


def _find_opening(paragraphs: Sequence[Sequence[str]], sentence: int) -> int:
    """Return the first sentence of a sentence's paragraph; the sentence itself if it is far."""
    start = 0
    for paragraph in paragraphs:
        if sentence < start + len(paragraph):
            before = paragraph[: sentence - start]
            return start if sum(map(len, before)) <= _OPENING_CHARS else sentence
        start += len(paragraph)
    return sentence


def _score(term: Term, sentence: str) -> float:
    """Return what a sentence has of a word: all, less in other words, or nothing."""
    if term.is_number:
        # Not the 3 of 30.
        found = re.search(rf"(?<![\w.]){re.escape(term.word)}(?!\w|[.,]\d)", sentence)
        return _NUMBER_POINTS if found else 0.0
    if term.word[:_STEM_CHARS] in sentence:
        return 1.0
    return _SYNONYM_POINTS if any(word in sentence for word in term.others) else 0.0
