"""Searches arXiv by its query API, which answers with an Atom feed."""

import asyncio
import re
import time
from dataclasses import dataclass, field
from xml.etree import ElementTree as Xml

from trunkline_agents.research.documents.formats import clean_text
from trunkline_agents.research.sources import TEXT_CHARS, Source
from trunkline_agents.research.web_search import SourceUnavailableError, fetch, is_web_url

ARXIV_URL = "https://export.arxiv.org"
# arXiv's terms of use: at most one request every three seconds.
_REQUEST_INTERVAL_S = 3.0
_ATOM = "{http://www.w3.org/2005/Atom}"
_ID = re.compile(r"(?<![\w.])(\d{4}\.\d{4,5}(?:v\d{1,2})?)(?![\w.]*\d)")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_WORD_LIMIT = 12
_STOP_WORDS = {
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
_STOP_WORDS |= {"latest", "new", "paper", "papers", "recent"}
_AUTHORS = 3


@dataclass(kw_only=True, slots=True)
class ArxivSearch:
    """A client of arXiv or of a mirror."""

    url: str = ARXIV_URL
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next_request_at: float = 0.0

    async def search(
        self, query: str, limit: int, *, author: str = "", is_newest_first: bool = False
    ) -> list[Source]:
        """Return the paper whose id the query names, otherwise the papers that have its words.

        A query without words finds nothing.

        Raises:
            SourceUnavailableError: arXiv does not answer, or not with a feed.
        """
        if not self.url:
            raise SourceUnavailableError("set arxiv_url under [research] in trunkline.toml")
        search = _build_query(query, author)
        if not any(search.values()):
            return []
        params = {"max_results": str(limit), **search}
        if is_newest_first:
            params |= {"sortBy": "submittedDate", "sortOrder": "descending"}
        async with self._turn:
            if self.url == ARXIV_URL:
                await asyncio.sleep(max(0.0, self._next_request_at - time.monotonic()))
            try:
                content = await fetch("GET", f"{self.url.rstrip('/')}/api/query", params=params)
            except SourceUnavailableError as error:
                hint = "it needs the network, or a mirror as arxiv_url under [research]"
                raise SourceUnavailableError(f"{error}; {hint}") from error
            finally:
                self._next_request_at = time.monotonic() + _REQUEST_INTERVAL_S
        return parse_feed(content)[:limit]


def parse_feed(feed: bytes) -> list[Source]:
    """Return the papers of a feed.

    Raises:
        SourceUnavailableError: it is not an Atom feed.
    """
    # Entities can expand a small file to a huge one, and no feed defines any.
    if b"<!DOCTYPE" in feed or b"<!ENTITY" in feed:
        raise SourceUnavailableError("arXiv answers with XML that is refused")
    try:
        root = Xml.fromstring(feed)  # noqa: S314 without entities, and of bounded size
    except (Xml.ParseError, RecursionError, ValueError) as error:
        raise SourceUnavailableError("arXiv answers with something else than a feed") from error
    if root.tag != f"{_ATOM}feed":
        raise SourceUnavailableError("arXiv answers with something else than a feed")
    papers = [_paper(entry) for entry in root.findall(f"{_ATOM}entry")]
    return [paper for paper in papers if paper is not None]


def _build_query(query: str, author: str) -> dict[str, str]:
    if match := _ID.search(query):
        return {"id_list": match[1]}
    found = _WORD.findall(query)
    # A query of stop words only may be a title.
    words = [word for word in found if word.casefold() not in _STOP_WORDS] or found
    terms = [f'all:"{word}"' for word in words[:_WORD_LIMIT]]
    if names := _WORD.findall(author):
        terms.append(f'au:"{" ".join(names[:_WORD_LIMIT])}"')
    return {"search_query": " AND ".join(terms)}


def _paper(entry: Xml.Element) -> Source | None:
    url = _text(entry, "id").replace("http://arxiv.org/", "https://arxiv.org/")
    title, summary = _text(entry, "title"), _text(entry, "summary")
    # arXiv reports an invalid query as an entry with such a URL.
    if not is_web_url(url) or not title or "/api/errors" in url:
        return None
    authors = [_text(author, "name") for author in entry.findall(f"{_ATOM}author")]
    names = ", ".join(filter(None, authors[:_AUTHORS]))
    more = " et al." if len(authors) > _AUTHORS else ""
    year = _text(entry, "published")[:4]
    place = ", ".join(filter(None, (f"{names}{more}", year if year.isdecimal() else "")))
    return Source(title, url, summary[:TEXT_CHARS] or title, place=place)


def _text(element: Xml.Element, name: str) -> str:
    return " ".join(clean_text(element.findtext(f"{_ATOM}{name}") or "").split())
