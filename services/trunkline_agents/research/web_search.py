"""Asks search engines over HTTP: within a deadline, within a size, and nowhere else than said."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from trunkline.network import is_this_machine
from trunkline_agents.research.documents.formats import clean_text
from trunkline_agents.research.sources import TEXT_CHARS, TITLE_CHARS, Source

TIMEOUT_S = 15.0
"""For a whole answer."""
LIMIT_BYTES = 4 * 1024 * 1024


class SourceUnavailableError(Exception):
    """Something can't be searched; the text is a sentence without its end."""


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    body: object = None,
) -> bytes:
    """Return the body of a 200 answer. Redirects aren't followed.

    Raises:
        Unavailable: there is none, or it is too long or too late.
    """
    host = urlsplit(url).hostname or url
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx2.AsyncClient(
                timeout=TIMEOUT_S,
                # A proxy set for the world outside must not capture what stays on this machine.
                trust_env=not is_this_machine(host),
            ) as client,
            client.stream(
                method,
                url,
                params=params,
                json=body,
                # Unpacked, an answer may be a thousand times as long.
                headers={"accept-encoding": "identity", "user-agent": "trunkline"}
                | dict(headers or {}),
            ) as response,
        ):
            return await _read(response, host)
    except TimeoutError as error:
        raise SourceUnavailableError(f"{host} does not answer within {TIMEOUT_S:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SourceUnavailableError(f"{host} can't be reached ({type(error).__name__})") from error


async def fetch_json(method: str, url: str, **request: Any) -> Any:  # noqa: ANN401 JSON
    """Return the JSON that `fetch` gives.

    Raises:
        Unavailable: there is none.
    """
    content = await fetch(method, url, **request)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceUnavailableError(
            f"{urlsplit(url).hostname} answers with something else than JSON"
        ) from error


async def _read(response: httpx2.Response, host: str) -> bytes:
    if response.status_code != 200:
        raise SourceUnavailableError(
            f"{host} answers with HTTP {response.status_code}{_why(response)}"
        )
    if response.headers.get("content-encoding", "identity") != "identity":
        raise SourceUnavailableError(f"{host} answers in an encoding that was not asked for")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > LIMIT_BYTES:
            raise SourceUnavailableError(
                f"{host} answers with more than {LIMIT_BYTES // 1024**2} MiB"
            )
    return bytes(content)


def _why(response: httpx2.Response) -> str:
    known = {401: "the key is refused", 429: "it is asked too often", 432: "its quota is used up"}
    said = known.get(response.status_code)
    return f": {said}" if said else ""


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
        raise SourceUnavailableError(
            f"set the variable {self.tavily_key_env} (a key of Tavily), or searxng_url under "
            "[research] in trunkline.toml"
        )

    async def _searxng(self, query: str) -> object:
        url = f"{self.searxng_url.rstrip('/')}/search"
        try:
            return await fetch_json("GET", url, params={"q": query, "format": "json"})
        except SourceUnavailableError as error:
            if "HTTP 403" not in str(error):
                raise
            # What SearXNG does with a format that its settings leave out.
            raise SourceUnavailableError(
                f"{error}: add json to search.formats in its settings.yml"
            ) from error

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
        raise SourceUnavailableError("the search engine answers with something else than results")
    found = [_source(one) for one in results if isinstance(one, dict)]
    return _different([one for one in found if one is not None])[:limit]


def _source(result: dict[str, Any]) -> Source | None:
    url, title, content = (_text(result.get(key)) for key in ("url", "title", "content"))
    if not is_web_url(url) or not (title or content):
        return None
    return Source(title[:TITLE_CHARS] or url, url, content[:TEXT_CHARS] or title)


def _different(sources: Sequence[Source]) -> list[Source]:
    return list({source.location: source for source in reversed(sources)}.values())[::-1]


def is_web_url(url: str) -> bool:
    """Whether it is a URL that people may be led to."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in url
    except ValueError:
        return False


def _text(value: object) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""
