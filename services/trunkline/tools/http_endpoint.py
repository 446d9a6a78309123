"""The endpoint of a remote MCP server, and the state of the connection to it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trunkline.errors import ToolServerUnavailableError
from trunkline.tools.config import ServerConfig, expand_all_variables, expand_variables
from trunkline.tools.connection import ServerConnection, ServerWarnings

if TYPE_CHECKING:
    from trunkline.tools.authorization import ServerAuthorization


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's URL and request headers. They may be secret: never log them."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    ca_file: Path | None
    """The file of the trusted certificate authorities, in place of the system's authorities."""

    @property
    def host(self) -> str:
        """The only part of the URL that may be shown; the rest may hold secrets."""
        parts = urlsplit(self.url)
        return parts.hostname or ""


class HttpEndpoint(ServerConnection):
    """The connection to a remote server."""

    transport = "tcp"

    def __init__(
        self,
        name: str,
        address: ServerAddress,
        *,
        warnings: ServerWarnings,
        authorization: "ServerAuthorization | None" = None,
    ) -> None:
        """`authorization` gets the tokens of a server with OAuth."""
        super().__init__(name, warnings)
        self.authorization = authorization
        self.address = address


@asynccontextmanager
async def open_endpoint(
    name: str,
    config: ServerConfig,
    *,
    warnings: ServerWarnings,
    authorization: "ServerAuthorization | None" = None,
) -> AsyncIterator[HttpEndpoint]:
    """Create the endpoint of a server. Nothing is sent before a session is opened on it.

    Raises:
        ToolServerUnavailableError: the entry's url is invalid, or needs a missing variable.
    """
    url = expand_variables(name, config.url)
    address = ServerAddress(
        url, expand_all_variables(name, config.headers), config.trunkline.ca_file
    )
    if not _is_url(url):
        raise ToolServerUnavailableError(name, "its url does not start with http:// or https://")
    endpoint = HttpEndpoint(name, address, warnings=warnings, authorization=authorization)
    try:
        yield endpoint
    finally:
        endpoint.mark_broken("its connection was closed")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return False
