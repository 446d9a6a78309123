"""A client of GraphQL for tests: over HTTP, server-sent events and WebSockets."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx2
from websockets.asyncio.client import ClientConnection, connect

from harness.a2a.bridged_mesh import Stream
from harness.mesh.small_mesh import PATIENCE_S

Json = dict[str, Any]
PROTOCOL = "graphql-transport-ws"


@dataclass(frozen=True, slots=True)
class GraphQLClient:
    """Sends operations to `/graphql` of a bridge."""

    client: httpx2.AsyncClient
    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.base_url}/graphql"

    async def post(self, query: str, *, accept: str = "", **variables: Any) -> httpx2.Response:
        """Send an operation; return the response as it is."""
        extra = {"Accept": accept} if accept else {}
        body = {"query": query, "variables": variables}
        return await self.client.post(self.url, json=body, headers={**self.headers, **extra})

    async def data(self, query: str, **variables: Any) -> Json:
        """Return the data of an operation that must succeed."""
        response = await self.post(query, **variables)
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        assert "errors" not in answer, answer
        found: Json = answer["data"]
        return found

    async def refusal(self, query: str, **variables: Any) -> Json:
        """Return the first error of an operation that must fail."""
        answer = (await self.post(query, **variables)).json()
        error: Json = answer["errors"][0]
        return error

    async def reason(self, query: str, **variables: Any) -> str:
        """Return the reason of the first error of an operation that must fail."""
        return str((await self.refusal(query, **variables))["extensions"]["reason"])

    @asynccontextmanager
    async def events(self, query: str, **variables: Any) -> AsyncIterator[Stream]:
        """Send an operation whose results are server-sent events."""
        async with self.client.stream(
            "POST",
            self.url,
            json={"query": query, "variables": variables},
            headers={**self.headers, "Accept": "text/event-stream"},
        ) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def socket(self, **options: Any) -> AsyncIterator["GraphQLSocket"]:
        """Open a WebSocket and initialise it."""
        url = self.url.replace("http", "ws", 1)
        options = {
            "additional_headers": self.headers,
            "subprotocols": [PROTOCOL],
            "proxy": None,
            **options,
        }
        async with connect(url, **options) as connection:
            socket = GraphQLSocket(connection)
            await socket.send({"type": "connection_init"})
            assert (await socket.frame())["type"] == "connection_ack"
            yield socket


class GraphQLSocket:
    """A connection with the subprotocol graphql-transport-ws."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._ids = itertools.count(1)

    async def send(self, frame: object) -> None:
        await self.connection.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def frame(self) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            found: Json = json.loads(await self.connection.recv())
        return found

    async def start(self, query: str, **variables: Any) -> str:
        """Start an operation; return its id."""
        tag = str(next(self._ids))
        payload = {"query": query, "variables": variables}
        await self.send({"id": tag, "type": "subscribe", "payload": payload})
        return tag

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Json:
        """Return the next frame until an operation is complete or failed."""
        frame = await self.frame()
        if frame["type"] == "complete":
            raise StopAsyncIteration
        return frame
