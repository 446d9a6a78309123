"""An MCP server elsewhere, reached by streamable HTTP: where it is, and how it is doing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trunkline.errors import ToolServerUnavailableError
from trunkline.tools.config import ServerConfig, expand_all_variables, expand_variables


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and what it has to be shown. Nothing of it is for logs or errors."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    ca_file: Path | None
    """Authorities that its certificate may come from; None: those the system trusts."""

    @property
    def host(self) -> str:
        """All that may be told of it: whatever else a URL has may be a secret."""
        parts = urlsplit(self.url)
        return parts.hostname or ""


class HttpEndpoint:
    """The way to a server elsewhere. Implements trunkline.tools.connection.Link."""

    pid = None

    def __init__(self, name: str, address: ServerAddress) -> None:
        self.name = name
        self.address = address
        self.has_ended = asyncio.Event()
        self.is_expired = False
        self.transport_error = ""
        self._problem = ""

    def mark_broken(self, problem: str) -> None:
        """Declare it lost: whoever waits for `has_ended` connects anew."""
        self._problem = self._problem or problem
        self.has_ended.set()

    def expire(self) -> None:
        """Take note that the server knows the session no more."""
        self.is_expired = True
        self.mark_broken("its session has expired")

    async def describe_end(self, when: str = "") -> str:
        """Say in a line why it was given up."""
        return self._problem

    async def describe_failed_start(self) -> str:
        """Say in a line why it was given up."""
        return self._problem


@asynccontextmanager
async def open_endpoint(name: str, config: ServerConfig) -> AsyncIterator[HttpEndpoint]:
    """Make the way to a server known; nothing is sent before a session is opened on it.

    Raises:
        ToolServerUnavailableError: the entry does not say where it is.
    """
    url = expand_variables(name, config.url)
    address = ServerAddress(
        url, expand_all_variables(name, config.headers), config.trunkline.ca_file
    )
    if not _is_url(url):
        raise ToolServerUnavailableError(name, "its url does not start with http:// or https://")
    endpoint = HttpEndpoint(name, address)
    try:
        yield endpoint
    finally:
        endpoint.mark_broken("it was left")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return False
