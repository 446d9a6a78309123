"""Searches arXiv by its query interface, which answers with an Atom feed."""

import asyncio
import re
import time
from dataclasses import dataclass, field
from xml.etree import ElementTree as Xml

from trunkline_agents.research.documents.formats import clean_text
from trunkline_agents.research.sources import TEXT_CHARS, Source
from trunkline_agents.research.web_search import SourceUnavailableError, fetch, is_web_url

ARXIV_URL = "https://export.arxiv.org"
# What its terms of use ask for: one request every three seconds.
_PAUSE_S = 3.0
_ATOM = "{http://www.w3.org/2005/Atom}"
_ID = re.compile(r"(?<![\w.])(\d{4}\.\d{4,5}(?:v\d{1,2})?)(?![\w.]*\d)")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_WORD_LIMIT = 12
_EMPTY = {
    "a",
    "an",
    "and",
    "about",
    "by",
    "for",
    "from",
    "in",
    "of",
    "on",
    "or",
    "the",
    "to",
    "with",
}
_EMPTY |= {"latest", "new", "paper", "papers", "recent"}
_AUTHORS = 3


@dataclass(kw_only=True, slots=True)
class ArxivSearch:
    """arXiv, or a mirror of it."""

    url: str = ARXIV_URL
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _free_at: float = 0.0

    async def search(
        self, query: str, limit: int, *, author: str = "", is_newest_first: bool = False
    ) -> list[Source]:
        """Return papers: that with the id which the query names, else those with its words.

        Raises:
            Unavailable: it can't be asked, or its answer is none.
        """
        if not self.url:
            raise SourceUnavailableError("set arxiv_url under [research] in trunkline.toml")
        params = {"max_results": str(limit), **_asked(query, author)}
        if is_newest_first:
            params |= {"sortBy": "submittedDate", "sortOrder": "descending"}
        async with self._turn:
            if self.url == ARXIV_URL:
                await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
            try:
                content = await fetch("GET", f"{self.url.rstrip('/')}/api/query", params=params)
            except SourceUnavailableError as error:
                hint = "it needs the network, or a mirror as arxiv_url under [research]"
                raise SourceUnavailableError(f"{error}; {hint}") from error
            finally:
                self._free_at = time.monotonic() + _PAUSE_S
        return parse_feed(content)[:limit]


def parse_feed(feed: bytes) -> list[Source]:
    """Return the papers of a feed.

    Raises:
        Unavailable: it is no Atom feed.
    """
    # Entities can make a small file huge; no feed needs any of its own.
    if b"<!DOCTYPE" in feed or b"<!ENTITY" in feed:
        raise SourceUnavailableError("arXiv answers with XML that is refused")
    try:
        root = Xml.fromstring(feed)  # noqa: S314 without entities, and of bounded size
    except (Xml.ParseError, RecursionError, ValueError) as error:
        raise SourceUnavailableError("arXiv answers with something else than a feed") from error
    if root.tag != f"{_ATOM}feed":
        raise SourceUnavailableError("arXiv answers with something else than a feed")
    found = [_paper(entry) for entry in root.findall(f"{_ATOM}entry")]
    return [one for one in found if one is not None]


def _asked(query: str, author: str) -> dict[str, str]:
    if found := _ID.search(query):
        return {"id_list": found[1]}
    words = [word for word in _WORD.findall(query) if word.casefold() not in _EMPTY]
    terms = [f'all:"{word}"' for word in words[:_WORD_LIMIT]]
    if names := _WORD.findall(author):
        terms.append(f'au:"{" ".join(names[:_WORD_LIMIT])}"')
    return {"search_query": " AND ".join(terms)}


def _paper(entry: Xml.Element) -> Source | None:
    url = _text(entry, "id").replace("http://arxiv.org/", "https://arxiv.org/")
    title, summary = _text(entry, "title"), _text(entry, "summary")
    # What is wrong with a query comes as an entry of this name.
    if not is_web_url(url) or not title or "/api/errors" in url:
        return None
    authors = [_text(one, "name") for one in entry.findall(f"{_ATOM}author")]
    names = ", ".join(filter(None, authors[:_AUTHORS]))
    more = " et al." if len(authors) > _AUTHORS else ""
    year = _text(entry, "published")[:4]
    place = ", ".join(filter(None, (f"{names}{more}", year if year.isdecimal() else "")))
    return Source(title, url, summary[:TEXT_CHARS] or title, place=place)


def _text(element: Xml.Element, name: str) -> str:
    return " ".join(clean_text(element.findtext(f"{_ATOM}{name}") or "").split())
