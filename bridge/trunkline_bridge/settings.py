"""What the bridge can be told; the process that starts it fills this in from its own settings."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSettings:
    """Whose tokens are good: JWTs of one issuer."""

    keys: str
    """The issuer's public keys: a JWKS, by URL or file."""
    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    account_claim: str = "sub"
    leeway_s: float = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BridgeSettings:
    """How the bridge serves A2A."""

    default_agent: str = "supervisor"
    """Answers at `/` as well as at its own address."""
    public_url: str = ""
    """Scheme, host and path that cards give, without a last slash. Empty: as the request says."""
    body_limit_bytes: int = 4 * 1024 * 1024
    """A larger request body is answered with HTTP 413. Large content belongs behind a URL."""
    request_timeout_s: float = 30.0
    """A request body that has not come within so long is answered with HTTP 408."""
    heartbeat_s: float = 15.0
    """A stream that is silent for so long gets a comment; over 30 s proxies begin to cut it."""
    patience_s: float = 30.0
    """How long a stream or a waiting call stands while its task's host can't be reached."""
    auth_wait_s: float = 600.0
    """How long a message's stream stands while its task waits for credentials."""
    blocking_limit_s: float = 3600.0
    """How long SendMessage waits for the end of a turn before it answers with a timeout."""
    card_max_age_s: int = 60
    """How long clients may keep a card before they ask whether it has changed."""
    lease_s: float = 10.0
    """How long a webhook rests when the bridge that was delivering it was killed."""
    allow_webhook: tuple[str, ...] = ()
    """Hosts, as HOST or HOST:PORT, that webhooks may lead to although they aren't public or https
    isn't spoken there."""
    webhook_secret: str = field(default="", repr=False)
    """What signs webhooks, as Standard Webhooks has it: whsec_ and base64. Empty: unsigned."""
    api_keys_file: Path | None = None
    """Who may call, by API key."""
    tokens: TokenSettings | None = None
    """Who may call, by token."""
    anonymous: bool = False
    """Let strangers in beside those."""
    card_key: Path | None = None
    """What signs cards; none: they aren't signed."""
    card_key_id: str = ""
    """Its `kid`; empty: its thumbprint."""
    strict_versions: bool = False
    """Whether a request that names no version is in v0.3, as the specification has it. Otherwise it
    is in the version that has its method or path."""
