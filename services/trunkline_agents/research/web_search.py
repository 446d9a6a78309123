"""Searches the web by Tavily or by the operator's SearXNG.

Requests have limits on the time and the size of the answer, and follow no redirects.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from trunkline.core.network import is_this_machine
from trunkline_agents.research.documents.formats import clean_text
from trunkline_agents.research.sources import TEXT_CHARS, TITLE_CHARS, Source

TIMEOUT_S = 15.0
"""The time limit for a complete response."""
LIMIT_BYTES = 4 * 1024 * 1024
TAVILY_URL = "https://api.tavily.com"


class SourceUnavailableError(Exception):
    """A source can't be searched. The text is a sentence without its full stop."""


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    body: object = None,
) -> bytes:
    """Return the body of an answer with status 200. Redirects are not followed.

    Raises:
        SourceUnavailableError: there is no such answer, or it is too long or too late.
    """
    host = urlsplit(url).hostname or url
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx2.AsyncClient(
                timeout=TIMEOUT_S,
                # A proxy from the environment is for other machines, not for this one.
                trust_env=not is_this_machine(host),
            ) as client,
            client.stream(
                method,
                url,
                params=params,
                json=body,
                # A compressed answer may be a thousand times as long when it is unpacked.
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
    """Return the JSON of an answer with status 200.

    Raises:
        SourceUnavailableError: as `fetch`, or the answer is not JSON.
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
            f"{host} answers with HTTP {response.status_code}{_explain_status(response)}"
        )
    if response.headers.get("content-encoding", "identity") != "identity":
        raise SourceUnavailableError(f"{host} answers in an encoding that the request excludes")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > LIMIT_BYTES:
            raise SourceUnavailableError(
                f"{host} answers with more than {LIMIT_BYTES // 1024**2} MiB"
            )
    return bytes(content)


def _explain_status(response: httpx2.Response) -> str:
    reasons = {401: "the key is refused", 429: "too many requests", 432: "its quota is used up"}
    reason = reasons.get(response.status_code)
    return f": {reason}" if reason else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSearch:
    """A client of a search engine: of SearXNG if it has a URL, else of Tavily if it has a key."""

    searxng_url: str = ""
    tavily_url: str = TAVILY_URL
    tavily_key: str = ""
    tavily_key_env: str = "TAVILY_API_KEY"
    """The variable that users must set; error texts name it."""

    async def search(self, query: str, limit: int) -> list[Source]:
        """Return the pages that match a query.

        Raises:
            SourceUnavailableError: no engine is set, or it does not answer.
        """
        if self.searxng_url:
            return _parse_sources(await self._searxng(query), limit)
        if self.tavily_key:
            return _parse_sources(await self._tavily(query, limit), limit)
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
            # SearXNG answers 403 for a format that its settings don't enable.
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


def _parse_sources(answer: object, limit: int) -> list[Source]:
    """Parse {"results": [{"title", "url", "content"}]}, the answer of both engines."""
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise SourceUnavailableError("the search engine answers with something else than results")
    sources = [_parse_source(result) for result in results if isinstance(result, dict)]
    return _remove_duplicates([source for source in sources if source is not None])[:limit]


def _parse_source(result: dict[str, Any]) -> Source | None:
    url, title, content = (_text(result.get(key)) for key in ("url", "title", "content"))
    if not is_web_url(url) or not (title or content):
        return None
    return Source(title[:TITLE_CHARS] or url, url, content[:TEXT_CHARS] or title)


def _remove_duplicates(sources: Sequence[Source]) -> list[Source]:
    return list({source.location: source for source in reversed(sources)}.values())[::-1]


def is_web_url(url: str) -> bool:
    """Return True for an absolute HTTP URL, which may be shown to people."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in url
    except ValueError:
        return False


def _text(value: object) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""
