"""Asks search engines over HTTP: within a deadline, within a size, and nowhere else than said."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from trunkline.documents.embedding import is_on_this_machine

TIMEOUT_S = 15.0
"""For a whole answer."""
LIMIT_BYTES = 4 * 1024 * 1024


class Unavailable(Exception):  # noqa: N818 it says what the engine is
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
                trust_env=not is_on_this_machine(host),
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
        raise Unavailable(f"{host} does not answer within {TIMEOUT_S:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unavailable(f"{host} can't be reached ({type(error).__name__})") from error


async def fetch_json(method: str, url: str, **request: Any) -> Any:  # noqa: ANN401 JSON
    """Return the JSON that `fetch` gives.

    Raises:
        Unavailable: there is none.
    """
    content = await fetch(method, url, **request)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unavailable(
            f"{urlsplit(url).hostname} answers with something else than JSON"
        ) from error


async def _read(response: httpx2.Response, host: str) -> bytes:
    if response.status_code != 200:
        raise Unavailable(f"{host} answers with HTTP {response.status_code}{_why(response)}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Unavailable(f"{host} answers in an encoding that was not asked for")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > LIMIT_BYTES:
            raise Unavailable(f"{host} answers with more than {LIMIT_BYTES // 1024**2} MiB")
    return bytes(content)


def _why(response: httpx2.Response) -> str:
    known = {401: "the key is refused", 429: "it is asked too often", 432: "its quota is used up"}
    said = known.get(response.status_code)
    return f": {said}" if said else ""
