"""Clients of the mesh's agents, for each caller by the caller's own credentials."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

from trunkline.a2a_client.client import Client
from trunkline.errors import OverloadedError

# Headers by which callers over HTTP authenticate.
_CREDENTIAL_HEADERS: Final = ("authorization", "x-api-key")
_MAX_CLIENTS: Final = 256


@dataclass(frozen=True, slots=True)
class CallerCredentials:
    """The headers that a caller is authenticated by, at the mesh's bridge."""

    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Take the credentials from the headers of a request."""
        return cls(tuple((name, headers[name]) for name in _CREDENTIAL_HEADERS if name in headers))

    def digest(self) -> str:
        """Return a text that identifies the credentials without showing them."""
        return hashlib.sha256(repr(self.headers).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"CallerCredentials({len(self.headers)} headers)"


class AgentClients:
    """The clients in use and the clients used last, at most 256. They share no credentials."""

    def __init__(self, url: str, own: CallerCredentials) -> None:
        """Ask the agents of the mesh at `url`. `own` credentials are for callers without any."""
        self._url = url.rstrip("/")
        self._own = own
        self._open: OrderedDict[tuple[str, CallerCredentials], _SharedClient] = OrderedDict()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for shared in self._open.values():
            shared.is_unwanted.set()
        await self._group.__aexit__(None, None, None)

    @asynccontextmanager
    async def client(self, agent: str, credentials: CallerCredentials) -> AsyncIterator[Client]:
        """Yield the client of an agent for a caller.

        Raises:
            OverloadedError: 256 clients are in use.
            ConfigurationError: the URL can't be used.
        """
        key = (agent, credentials if credentials.headers else self._own)
        shared = self._open.get(key)
        if shared is None:
            self._make_room()
            client = Client(self._url, agent=agent, headers=dict(key[1].headers))
            shared = self._open[key] = _SharedClient(client)
            self._group.create_task(shared.keep_open())
        self._open.move_to_end(key)
        shared.users += 1
        try:
            await shared.is_open.wait()
            yield shared.client
        finally:
            shared.users -= 1

    def _make_room(self) -> None:
        if len(self._open) < _MAX_CLIENTS:
            return
        unused = next((key for key, shared in self._open.items() if not shared.users), None)
        if unused is None:
            raise OverloadedError("mcp", "1")
        self._open.pop(unused).is_unwanted.set()


class _SharedClient:
    """A client that a separate asyncio task opens and closes, because its users come and go."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.users = 0
        self.is_open = asyncio.Event()
        self.is_unwanted = asyncio.Event()

    async def keep_open(self) -> None:
        async with self.client:
            self.is_open.set()
            await self.is_unwanted.wait()
