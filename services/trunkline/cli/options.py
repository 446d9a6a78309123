"""The options that several commands share, and where they get their defaults."""

from typing import Annotated
from urllib.parse import urlsplit

import typer

from trunkline.errors import ConfigurationError
from trunkline.settings import HostPort, Settings, load_settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="TRUNKLINE_URL",
        help="Where the mesh, or an agent, serves A2A.",
        metavar="URL",
    ),
]
Agent = Annotated[
    str | None,
    typer.Option("--agent", help="Ask this agent instead of the default one.", metavar="NAME"),
]
Mesh = Annotated[
    str | None,
    typer.Option("--mesh", help="The mesh's gRPC address. [TRUNKLINE_MESH]", metavar="HOST:PORT"),
]

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task.", show_default=False)]


def base_url(url: str | None, *, settings: Settings | None = None) -> str:
    """Return the URL given, or that of the mesh which `up` would start here.

    Raises:
        ConfigurationError: it is not an HTTP URL.
    """
    if url is None:
        return f"http://{(settings or load_settings()).http}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        problem = f"{url!r} is not a URL that starts with http:// or https://"
        raise ConfigurationError(where="--url", problem=problem)
    return url.rstrip("/")


def agent_url(base: str, agent: str | None) -> str:
    """Return where an agent answers; without a name, the one at the base itself."""
    return f"{base}/agents/{agent}" if agent else base


def mesh_address(mesh: str | None) -> str:
    """Return the gRPC address given by flag, environment or file, or the default.

    Raises:
        ConfigurationError: it is not HOST:PORT.
    """
    return str(_connectable(load_settings({"mesh": mesh}).mesh))


def _connectable(address: HostPort) -> HostPort:
    if address.port == 0:
        problem = f"{address} is where a mesh picks a port; give the one that it printed"
        raise ConfigurationError(where="--mesh", problem=problem)
    return address
