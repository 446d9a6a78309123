"""Settings of the Argo CD agent, and the command line of its MCP server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict

from trunkline.core.network import is_loopback
from trunkline.core.settings import check_optional_url
from trunkline.errors import ConfigurationError

if TYPE_CHECKING:
    from trunkline import McpServer, PluginContext

COMMAND = "trunkline-mcp-argocd"
TOKEN_VARIABLE = "ARGOCD_AUTH_TOKEN"  # noqa: S105 the name of a variable
"""Holds the server's token. Argo CD's own command line uses the same name."""


class ArgoCDSettings(BaseModel):
    """The table `[argocd]`, or variables TRUNKLINE_ARGOCD_URL, ….

    The agent is on the mesh only if `url` is set.
    """

    model_config = ConfigDict(frozen=True)

    url: Annotated[str, AfterValidator(check_optional_url)] = ""
    """The address of Argo CD's API, without `/api`."""
    token_env: str = TOKEN_VARIABLE
    """The variable that holds the token of an Argo CD account."""
    ca_file: Annotated[Path, AfterValidator(Path.expanduser)] | None = None
    """The file with the certificates (PEM) of the authorities that may sign Argo CD's certificate.
    Without it, the authorities of the machine are trusted."""


def build_servers(context: "PluginContext[ArgoCDSettings]") -> Mapping[str, "McpServer"]:
    """Return the server `argocd` if a URL is set and the operator has no server of this name.

    Raises:
        ConfigurationError: the token would be sent unencrypted.
    """
    # Loads gRPC's messages: the server, which imports this module, needs none.
    from trunkline import McpServer

    settings = context.settings
    if not settings.url or "argocd" in context.configured_servers:
        return {}
    url = urlsplit(settings.url)
    if url.scheme != "https" and not is_loopback(url.hostname or ""):
        problem = f"{settings.url!r} is not https, and a token goes there"
        raise ConfigurationError(where="[argocd] url", problem=problem)
    args = [f"--url={settings.url}"]
    if settings.ca_file is not None:
        args.append(f"--ca-file={settings.ca_file.absolute()}")
    # A reference, so that only the process that starts the server holds the token.
    token = f"${{{settings.token_env}}}" if os.environ.get(settings.token_env) else ""
    env = {TOKEN_VARIABLE: token} if token else {}
    idle_s = context.mesh.tool_idle_s
    return {"argocd": McpServer(command=COMMAND, args=args, env=env, idle_s=idle_s)}
