"""Searches the web: by Tavily, or by a SearXNG of one's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trunkline.documents.reading.kinds import clean
from trunkline.tools.servers.research.fetching import Unavailable, fetch_json
from trunkline.tools.servers.research.sources import TEXT_CHARS, TITLE_CHARS, Source

TAVILY_URL = "https://api.tavily.com"


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSearch:
    """Which search engine is asked: SearXNG if there is one, else Tavily if there is a key."""

    searxng_url: str = ""
    tavily_url: str = TAVILY_URL
    tavily_key: str = ""
    tavily_key_env: str = "TAVILY_API_KEY"
    """What people have to set: named in what they are told."""

    async def search(self, query: str, limit: int) -> list[Source]:
        """Return what the web says of it.

        Raises:
            Unavailable: no engine is set, or it can't be asked.
        """
        if self.searxng_url:
            return _sources(await self._searxng(query), limit)
        if self.tavily_key:
            return _sources(await self._tavily(query, limit), limit)
        raise Unavailable(
            f"set the variable {self.tavily_key_env} (a key of Tavily), or searxng_url under "
            "[research] in trunkline.toml"
        )

    async def _searxng(self, query: str) -> object:
        url = f"{self.searxng_url.rstrip('/')}/search"
        try:
            return await fetch_json("GET", url, params={"q": query, "format": "json"})
        except Unavailable as error:
            if "HTTP 403" not in str(error):
                raise
            # What SearXNG does with a format that its settings leave out.
            raise Unavailable(f"{error}: add json to search.formats in its settings.yml") from error

    async def _tavily(self, query: str, limit: int) -> object:
        return await fetch_json(
            "POST",
            f"{self.tavily_url.rstrip('/')}/search",
            headers={"authorization": f"Bearer {self.tavily_key}"},
            body={"query": query, "max_results": limit, "search_depth": "basic"},
        )


def _sources(answer: object, limit: int) -> list[Source]:
    """Both engines answer with {"results": [{"title", "url", "content"}]}."""
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise Unavailable("the search engine answers with something else than results")
    found = [_source(one) for one in results if isinstance(one, dict)]
    return _different([one for one in found if one is not None])[:limit]


def _source(result: dict[str, Any]) -> Source | None:
    url, title, content = (_text(result.get(key)) for key in ("url", "title", "content"))
    if not is_web_address(url) or not (title or content):
        return None
    return Source(title[:TITLE_CHARS] or url, url, content[:TEXT_CHARS] or title)


def _different(sources: Sequence[Source]) -> list[Source]:
    return list({source.location: source for source in reversed(sources)}.values())[::-1]


def is_web_address(url: str) -> bool:
    """Whether it is a URL that people may be led to."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in url
    except ValueError:
        return False


def _text(value: object) -> str:
    return clean(value).strip() if isinstance(value, str) else ""
