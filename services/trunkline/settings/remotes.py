"""What can be set of one remote A2A agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class RemotePeer:
    """A remote A2A agent: where it is, what it gets of us, and what is put up with from it."""

    url: str
    """Of the agent, or of its card."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each request."""
    hosts: tuple[str, ...] = ()
    """Where its card may lead beside the card's own host; it gets messages and credentials."""
    bindings: tuple[str, ...] = ()
    """Only these of JSONRPC, HTTP+JSON and GRPC; none: what its card has first."""
    versions: tuple[str, ...] = ()
    """Only these of 1.0 and 0.3; none: what its card has first."""
    idle_s: float = 300.0
    """A task of which nothing is heard for so long is canceled there, and fails here."""
    patience_s: float = 30.0
    """How long a task goes on trying while the remote agent can't be reached."""
    refresh_s: float = 300.0
    """How often its card is read again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote(RemotePeer):
    """One that is put on the mesh: a `[remote.NAME]` table of `trunkline.toml`."""

    token_env: str = ""
    """The variable that holds its bearer token."""
    api_key_env: str = ""
    """The variable that holds its API key."""
    api_key_header: str = "X-API-Key"
    """The header that the key goes in."""
