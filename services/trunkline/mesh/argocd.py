"""Puts the Argo CD server on the mesh, if settings say where Argo CD is."""

import os
from dataclasses import replace
from urllib.parse import urlsplit

from trunkline.errors import ConfigurationError
from trunkline.mesh.shipped import ARGOCD
from trunkline.settings import HostPort, Settings
from trunkline.tools.config import McpConfig, ServerConfig, ServerOverlay
from trunkline_agents.argocd.settings import COMMAND, TOKEN_KEY

_IDLE_S = 60.0


def with_argocd(config: McpConfig, settings: Settings) -> McpConfig:
    """Return the servers with ours, which the agent `argocd` is built on.

    Another server of this name, that an operator has configured, is left in its place.

    Raises:
        ConfigurationError: the token would travel in the clear.
    """
    argocd = settings.argocd
    if not argocd.url or ARGOCD in config.servers:
        return config
    place = urlsplit(argocd.url)
    if place.scheme != "https" and not HostPort(place.hostname or "", 0).is_loopback:
        problem = f"{argocd.url!r} is not https, and a token goes there"
        raise ConfigurationError(where="[argocd] url", problem=problem)
    arguments = [f"--url={argocd.url}"]
    if argocd.ca_file is not None:
        arguments.append(f"--ca-file={argocd.ca_file.absolute()}")
    # Where the server is started, it is put in; nobody else holds it.
    token = f"${{{argocd.token_env}}}" if os.environ.get(argocd.token_env) else ""
    server = ServerConfig(
        command=COMMAND,
        args=arguments,
        env={TOKEN_KEY: token} if token else {},
        trunkline=ServerOverlay(idle_s=_IDLE_S),
    )
    servers = {**config.servers, ARGOCD: server}
    return replace(config, servers=servers, bundled=config.bundled | {ARGOCD})
