"""A client of the page's API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from harness.a2a.bridged_mesh import Json, Stream
from harness.a2a.caller_keys import key_headers


class PageClient:
    """Calls the page's API with the API key of a caller; an empty name sends none."""

    def __init__(self, client: httpx2.AsyncClient, url: str, caller: str) -> None:
        self.headers = key_headers(caller)
        self._client = client
        self._url = f"{url}/ui/api"

    async def get(self, path: str, **params: Any) -> httpx2.Response:
        """Return the response to a read."""
        return await self._client.get(self._url + path, params=params, headers=self.headers)

    async def read(self, path: str, **params: Any) -> Json:
        """Return the JSON of a read that must succeed."""
        return _content(await self.get(path, **params))

    async def post(self, path: str, **body: Any) -> httpx2.Response:
        """Return the response to a change."""
        return await self._client.post(self._url + path, json=body, headers=self.headers)

    async def change(self, path: str, **body: Any) -> Json:
        """Return the JSON of a change that must succeed."""
        return _content(await self.post(path, **body))

    @asynccontextmanager
    async def stream(
        self, path: str, *, last_id: str | None = None, **params: Any
    ) -> AsyncIterator[Stream]:
        """Open a stream that must be one."""
        headers = self.headers if last_id is None else {**self.headers, "Last-Event-ID": last_id}
        async with self._open("GET", path, params=params, headers=headers) as stream:
            yield stream

    @asynccontextmanager
    async def post_stream(self, path: str, **body: Any) -> AsyncIterator[Stream]:
        """Open the stream of a change; it must be one."""
        async with self._open("POST", path, json=body, headers=self.headers) as stream:
            yield stream

    @asynccontextmanager
    async def _open(self, method: str, path: str, **request: Any) -> AsyncIterator[Stream]:
        async with self._client.stream(method, self._url + path, **request) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream"
            yield Stream(response)


def reason(response: httpx2.Response) -> str:
    """Return the reason of a response that must be a refusal."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return str(error["details"][0]["reason"])


def _content(response: httpx2.Response) -> Json:
    assert response.status_code == 200, response.text
    content: Json = response.json()
    return content
