"""What a remote agent's operator says of it."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from trunkline.client.breaker import DEFAULTS, BreakerSettings
from trunkline.errors import ConfigurationError
from trunkline.settings import Remote
from trunkline_bridge.outbound.interfaces import is_local

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteSettings:
    """Where a remote agent is, what it gets to see of us, and what is put up with from it.

    Times are in seconds.
    """

    url: str
    """Of the agent, or of its card."""
    name: str = ""
    """What it is called on the mesh; empty: as its card has it, in our letters."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request: credentials, too."""
    hosts: tuple[str, ...] = ()
    """Where its card may lead beside the card's own host."""
    bindings: tuple[str, ...] = ()
    """Only these of JSONRPC, HTTP+JSON and GRPC; none: what its card has first."""
    versions: tuple[str, ...] = ()
    """Only these of 1.0 and 0.3; none: what its card has first."""
    idle_s: float = 300.0
    """A remote task of which nothing is heard for so long is canceled, and ours fails."""
    patience_s: float = 30.0
    """How long a task goes on trying while the remote agent can't be reached."""
    refresh_s: float = 300.0
    """How often its card is read again."""
    content_bytes: int = 16 * 1024 * 1024
    """What it may send in a turn."""
    breaker: BreakerSettings = DEFAULTS

    @classmethod
    def of(cls, name: str, given: Remote, breaker: BreakerSettings = DEFAULTS) -> Self:
        """Return what a process's settings say, with the credentials that they name.

        Raises:
            ConfigurationError: a variable that holds credentials isn't set.
        """
        where = f"remote.{name}" if name else "join"
        headers = dict(given.headers)
        if given.token_env:
            headers["authorization"] = f"Bearer {_secret(given.token_env, where)}"
        if given.api_key_env:
            headers[given.api_key_header.lower()] = _secret(given.api_key_env, where)
        is_secret = bool(given.token_env or given.api_key_env)
        if is_secret and given.url.startswith("http:") and not is_local(given.url):
            logger.warning("remote.credentials_not_encrypted", extra={"where": where})
        return cls(
            url=given.url,
            name=name,
            headers=headers,
            hosts=given.hosts,
            bindings=given.bindings,
            versions=given.versions,
            idle_s=given.idle_s,
            patience_s=given.patience_s,
            refresh_s=given.refresh_s,
            breaker=breaker,
        )


def _secret(variable: str, where: str) -> str:
    found = os.environ.get(variable, "").strip()
    if not found:
        problem = f"the variable {variable}, which holds its credentials, is not set"
        raise ConfigurationError(where, problem)
    if not found.isascii() or not found.isprintable():
        raise ConfigurationError(where, f"what {variable} holds can't be sent in a header")
    return found
