"""A client of HTTP+JSON that sees statuses, headers and every event."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2

from harness.a2a.server_sent_events import read_events

Json: TypeAlias = dict[str, Any]

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RestEvent:
    """A server-sent event."""

    id: str
    kind: str
    data: Json

    @property
    def state(self) -> str:
        """The state in the event, if it has one."""
        for name in ("task", "statusUpdate"):
            if name in self.data:
                return str(self.data[name]["status"]["state"])
        return ""


def user_message(text: str, *, parts: str = "parts", **fields: str) -> Json:
    """A user's message; `parts` is the name of that field in this version."""
    message = {"messageId": f"m-{next(_ids)}", "role": "ROLE_USER", **fields}
    return {**message, parts: [{"text": text}]}


class RestCaller:
    """Calls one agent over HTTP+JSON."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self.client = client
        self.url = url

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Send a request and read its whole response."""
        return await self.client.request(
            method, self.url + path, json=body, headers=dict(headers or {}), params=query
        )

    async def get(self, path: str, **query: str) -> Json:
        """Return the JSON at a path; assert that the request succeeds."""
        return content(await self.request("GET", path, query=query))

    async def post(self, path: str, body: object = None) -> Json:
        """Post a body and return the JSON; assert that the request succeeds."""
        return content(await self.request("POST", path, body))

    async def send(self, text: str, *, now: bool = False, **message: str) -> Json:
        """Send a message and return the task; `now` doesn't wait for the end of the turn."""
        body = {
            "message": user_message(text, **message),
            "configuration": {"returnImmediately": now},
        }
        task: Json = (await self.post("/message:send", body))["task"]
        return task

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[AsyncIterator[RestEvent]]:
        """Open a stream; assert that the response is one."""
        async with self.client.stream(
            method, self.url + path, json=body, headers=dict(headers or {})
        ) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            assert response.status_code == 200
            yield _events(response)

    async def events(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> list[RestEvent]:
        """Return all events of a stream."""
        async with self.stream(method, path, body, headers) as events:
            return [event async for event in events]


def content(response: httpx2.Response) -> Json:
    """The body of a response that must be a success."""
    assert response.status_code == 200, response.text
    content_json: Json = response.json()
    return content_json


def reason(response: httpx2.Response) -> str:
    """The reason of a response that must be an error."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return str(error["details"][0]["reason"])


async def _events(response: httpx2.Response) -> AsyncIterator[RestEvent]:
    async for event in read_events(response.aiter_lines()):
        yield RestEvent(event.id, event.kind, json.loads(event.data))
