"""Settings of the bridge. The process that starts it fills them in from its own settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trunkline.settings import (
    GraphQLSettings,
    LimitSettings,
    PageSettings,
    ScopeSettings,
    TlsSettings,
)
from trunkline.span_content import ContentCapture


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSettings:
    """The JWTs to accept, from one issuer for one audience."""

    keys: str
    """The issuer's public keys: the URL or path of a JWKS."""
    issuer: str
    """The required claim `iss`."""
    audience: str
    """The required claim `aud`."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    """The accepted signature algorithms (RFC 7518, RFC 8037)."""
    account_claim: str = "sub"
    """The claim that names the caller's account."""
    account_prefix: str = "jwt:"
    """Prefix of the accounts of tokens. If empty, a token shares the account of an API key of its
    name."""
    leeway_s: float = 30.0
    """Tolerated difference between the clocks, in seconds."""
    scopes: Mapping[str, ScopeSettings] = field(default_factory=dict)
    """The agents and methods of each scope. If empty, every token permits everything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BridgeSettings:
    """The settings of the bridge."""

    default_agent: str = "supervisor"
    """The agent at `/`. It has its own address as well."""
    public_url: str = ""
    """Base URL in cards, without a trailing slash. If empty, cards have the URL of the request."""
    allowed_hosts: tuple[str, ...] = ()
    """Further hosts that requests may have as Host, each as HOST or HOST:PORT."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages of other sites that browsers let read responses (CORS); `*`: all."""
    body_limit_bytes: int = 4 * 1024 * 1024
    """Limit on request bodies; larger ones get HTTP 413. Large content belongs behind a URL."""
    request_timeout_s: float = 30.0
    """Seconds for a request body to arrive. Slower ones get HTTP 408."""
    heartbeat_s: float = 15.0
    """Seconds between comments in a silent stream. Above 30, proxies may cut the stream."""
    patience_s: float = 30.0
    """Seconds that a stream or a waiting call tolerates an unreachable host of its task."""
    auth_wait_s: float = 600.0
    """Seconds that the stream of a message stays open while the task waits for credentials."""
    blocking_limit_s: float = 3600.0
    """Seconds that SendMessage waits for the end of a turn before it fails with a timeout."""
    card_max_age_s: int = 60
    """Seconds that caches may store a card that has the same URL for all callers."""
    lease_s: float = 10.0
    """Seconds until another bridge takes over the webhooks of a killed one."""
    allow_webhook: tuple[str, ...] = ()
    """Hosts whose webhooks may use http or a private address, each as HOST or HOST:PORT."""
    webhook_secret: str = field(default="", repr=False)
    """Secret that signs webhooks, in the form of Standard Webhooks (whsec_ and base64). If empty,
    webhooks are not signed.
    """
    api_keys_file: Path | None = None
    """File of the API keys to accept, or None to accept none."""
    tokens: TokenSettings | None = None
    """The tokens to accept, or None to accept none."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """The certificate of this bridge, and the certificates of callers."""
    failed_credentials_per_minute: int = 60
    """Wrong credentials that an address, or the name of an expired key or token, may send a minute.
    Further requests get 429. With 0, there is no limit.
    """
    anonymous: bool = False
    """Admit anonymous callers beside authenticated ones."""
    metrics_public: bool = False
    """Let all callers read `/metrics`, also if callers are authenticated."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits of accounts. Hosts check the limits of tasks and budgets."""
    card_key: Path | None = None
    """Private key that signs cards, in PEM, or None if cards are not signed."""
    card_key_id: str = ""
    """Key id (`kid`) in signatures. If empty, it is the thumbprint of the key."""
    content: ContentCapture | None = None
    """Records the message and the answer in the span of a request, or None to record neither."""
    streaming: bool = True
    """Serve streams. Otherwise cards don't declare them and the methods are refused."""
    push_notifications: bool = True
    """Serve webhooks. Otherwise cards don't declare them, the methods are refused, and this bridge
    delivers none.
    """
    view: Literal["detailed", "plain"] = "detailed"
    """The view of tasks for requests that do not activate the extension of the plain view."""
    agent_views: Mapping[str, Literal["detailed", "plain"]] = field(default_factory=dict)
    """The views of agents that have their own."""
    graphql: GraphQLSettings = field(default_factory=GraphQLSettings)
    """GraphQL at `/graphql`."""
    page: PageSettings = field(default_factory=PageSettings)
    """The page at `/ui`."""
    strict_versions: bool = False
    """Treat requests without a version, or with an empty one, as v0.3, as A2A 1.0 says (3.6).

    Otherwise the method, path or package decides the version.
    """

    def agent_view(self, agent: str) -> Literal["detailed", "plain"]:
        """Return the view of an agent's tasks."""
        return self.agent_views.get(agent, self.view)
