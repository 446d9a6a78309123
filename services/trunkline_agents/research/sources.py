"""The result of a search: a text that can be read alone, and data with the same content."""

from dataclasses import dataclass
from typing import Any

from trunkline_agents.research.documents.search import parse_terms
from trunkline_agents.research.excerpts import extract_excerpt

TITLE_CHARS = 200
TEXT_CHARS = 2000
"""Longest text of one source."""


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
        """One line by which people find the source."""
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
    """Sentences that name a source that could not be searched, and the way to enable it."""
    is_fallback: bool = False
    """The sources are documents, because the requested source can't be searched."""

    @property
    def text(self) -> str:
        """The result for people: an excerpt of each source, and the list of sources."""
        terms = parse_terms(self.query)
        excerpts = [
            _label(number, extract_excerpt(source.text, terms))
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


def _label(number: int, excerpt: str) -> str:
    """Put the number before an excerpt, which may begin with a line break."""
    return f"[{number}]{excerpt}" if excerpt.startswith("\n") else f"[{number}] {excerpt}"
