"""The settings of a mesh: names, defaults, limits and meanings."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Final, Literal

from trunkline.core.settings.addresses import HostPort, MeshAddress
from trunkline.core.settings.constraints import (
    DAY_S,
    Between,
    FilePath,
    HostNames,
    NonNegativeSeconds,
    OptionalAddress,
    OptionalBucketUrl,
    OptionalPostgresUrl,
    OptionalUrl,
    Origins,
    Texts,
)
from trunkline.core.settings.limits import LimitSettings
from trunkline.core.settings.sections import (
    AgentSettings,
    GraphQLSettings,
    MessagingSettings,
    MetricsSettings,
    ModelSettings,
    PageSettings,
    ParticipantSettings,
    PluginTable,
    PolicySettings,
    RemoteAgentSettings,
    ScopeSettings,
    SupervisorSettings,
    TlsSettings,
    TreeSettings,
)

_DEFAULT_MESH: Final = MeshAddress((HostPort("127.0.0.1", 50051),))
ENV_PREFIX: Final = "TRUNKLINE_"
AGENT_PLUGIN_GROUP: Final = "trunkline.agents"
"""The entry-point group of packages that bring an agent."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a mesh, by name in `trunkline.toml` and as TRUNKLINE_NAME in the environment.

    The constructor neither validates values nor reads the environment. `load_settings` does both.
    """

    http: HostPort = HostPort("127.0.0.1", 8000)
    """The address where the bridge serves A2A over HTTP."""
    a2a_grpc: HostPort = HostPort("127.0.0.1", 50052)
    """The address where the bridge serves A2A over gRPC."""
    mesh: MeshAddress = _DEFAULT_MESH
    """The address where the mesh serves gRPC: registry, traces and OTLP; in one process also tasks
    and tools. For a mesh with several registries, the addresses of all, separated by commas. The
    first one names the mesh."""
    listen: HostPort = HostPort("127.0.0.1", 0)
    """The address where a process of agents or tools serves gRPC. Port 0 selects a free port."""
    advertise: str = ""
    """The address by which other processes of the mesh reach this process: HOST or HOST:PORT. The
    default is the address that the process listens on. The setting is required if the process
    listens on a wildcard address."""
    data_dir: FilePath = Path(".trunkline")
    """The folder of journals and traces. Relative paths in the file start at the file's folder."""
    identity_folder: FilePath | None = None
    """The folder of this process's identity on the mesh. In the file, this setting is `folder` in
    the table `[identity]`, where all `identity_` settings are. The default is a folder for the
    mesh's address in the user's state folder."""
    join: HostPort | None = None
    """The address where the mesh accepts join tokens. The default is a free port of the host of
    `mesh`."""
    join_token: str = field(default="", repr=False)
    """A token of `trunkline mesh token`, by which this process joins a mesh of another user or
    machine."""
    identity_certificate: FilePath | None = None
    """This process's certificate (PEM), made by SPIFFE or a certificate manager. The file is read
    again when it changes. By default the mesh issues the certificate."""
    identity_key: FilePath | None = None
    """The key of `identity_certificate` (PEM)."""
    identity_roots: FilePath | None = None
    """The roots of the mesh (PEM) that go with `identity_certificate`."""
    identity_roles: Mapping[str, str] = field(default_factory=dict)
    """The roles of SPIFFE ids that this mesh did not issue: `member`, `bridge`, `tools` or
    `agents/NAME/NAME`."""
    mcp_file: FilePath | None = None
    """A file of MCP servers in the usual `mcpServers` form. The default is the bundled servers."""
    agents: Texts = ()
    """Agents to run besides the bundled ones: MODULE:NAME; in a variable, comma-separated."""
    workflows: Texts = ()
    """Workflow files to run as agents, folders of them, and names of installed workflows, such as
    `review`; in a variable, comma-separated."""
    joining: Texts = ()
    """Agents that join the mesh from other processes. Supervisors and tables of the file may name
    them although they are not there at the start."""
    default_agent: str = "supervisor"
    """The agent that answers at `/`."""
    insecure: bool = False
    """Let the bridge listen on non-loopback addresses although callers are not authenticated."""
    public_url: OptionalUrl = ""
    """The URL of the bridge in agent cards. By default it is taken from each request. The host of
    this URL is accepted in the `Host` header of requests."""
    public_grpc: OptionalAddress = ""
    """The gRPC address of the bridge in agent cards, HOST:PORT. The default is the listening
    address."""
    allowed_hosts: HostNames = ()
    """Further names by which callers reach the bridge over HTTP: HOST, or HOST:PORT for one port.
    Requests with any other Host than these, the bridge's address and `public_url` get 421."""
    allowed_origins: Origins = ()
    """Origins of web pages of other sites that may call the bridge over HTTP by CORS, such as
    `https://app.example`; `*`: all, only where callers are authenticated."""
    lease_s: Annotated[float, Between(0.1, 3600)] = 10.0
    """A host or task without a renewal for this long counts as failed. Lower values detect failures
    sooner but misfire under load."""
    ping_s: Annotated[float, Between(0, 600)] = 0.0
    """A process that does not answer for this long counts as gone. With 0, the time is three
    quarters of the lease."""
    flush_interval_ms: Annotated[float, Between(0, 5)] = 4.0
    """The shortest time between two commits of text, which a journal's tasks share. With 0, each
    piece is sent alone, which is expensive."""
    view: Literal["detailed", "plain"] = "detailed"
    """The view of tasks for A2A clients. `plain`: statuses and one answer, without plans, calls
    and the texts of other agents."""
    streaming: bool = True
    """Serve A2A's streams. Without them, cards don't declare streaming, and its methods are
    refused."""
    push_notifications: bool = True
    """Serve A2A's webhooks. Without them, cards don't declare push notifications, their methods are
    refused, and this bridge delivers no notifications."""
    strict_versions: bool = False
    """Treat a request whose `A2A-Version` is missing or empty as v0.3, as A2A 1.0 says (section
    3.6): it gets the card of v0.3, and a method of another version is an error. Otherwise the
    method, path or package decides: clients that forget the header work, and so do clients of the
    original wire."""
    body_limit_bytes: Annotated[int, Between(1024, 1 << 30)] = 4 * 1024 * 1024
    """The largest HTTP request body. Larger ones get 413."""
    request_timeout_s: Annotated[float, Between(0.1, 3600)] = 30.0
    """The time limit for receiving an HTTP request. Slower ones get 408."""
    connection_limit: Annotated[int, Between(1, 1_000_000)] = 2000
    """The number of connections to the bridge, for HTTP and for gRPC each. Further ones get 503 or
    are closed. An HTTP stream uses one connection; gRPC streams share their client's."""
    heartbeat_s: Annotated[float, Between(0.1, 45)] = 15.0
    """An SSE stream that is silent for this long gets a comment, so that proxies keep it open.
    Trunkline's own clients give up a stream that is silent for a minute."""
    patience_s: Annotated[float, Between(0, 3600)] = 30.0
    """The time for which the bridge keeps a stream or a waiting call open while its task's host is
    unreachable. A takeover needs up to two leases."""
    auth_wait_s: Annotated[float, Between(0, 30 * DAY_S)] = 600.0
    """The time for which a message's stream stays open while its task waits for credentials. The
    task continues to wait. Streams of A2A versions before 1.0 have no such limit."""
    encryption_key: str = field(default="", repr=False)
    """The key that encrypts stored data: 32 bytes in base64. Several are separated by spaces, the
    newest first. Set it in the environment rather than in the file. Without a key,
    `encryption_key_file` and `encryption_key_command` apply."""
    encryption_key_file: FilePath | None = None
    """A file with that key, which only you may read. Several are on lines of their own."""
    encryption_key_command: str = ""
    """A command that prints the key, for example of a secret manager. The command runs without a
    shell."""
    store: OptionalPostgresUrl = field(default="", repr=False)
    """Where journals and files of tasks are: an empty value means files of the data directory, and
    a URL that starts with postgresql:// a database that hosts on several machines share. The
    database's clock then measures their leases, and any host with the same agents continues the
    tasks of a host that is gone. Everything else stays in the data directory."""
    files: OptionalBucketUrl = ""
    """Where the bytes of files of tasks are: an empty value means in `store`, and s3://BUCKET/PREFIX
    in a bucket of S3 or of a store with the same interface. Endpoint and credentials are in the
    variables of AWS, such as AWS_ENDPOINT_URL. It needs a database in `store`."""
    synchronous: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` also a power failure, at a higher cost."""
    cancel_grace_s: NonNegativeSeconds = 2.0
    """The time that canceled code has for cleaning up before its task is canceled regardless."""
    prewarm: bool = False
    """Load the reasoning libraries at the start. The first question is half a second faster, and an
    idle mesh is about 55 MB larger."""
    tool_idle_s: Annotated[float, Between(0.1, 365 * DAY_S)] = 600.0
    """The time without calls after which the MCP servers of the bundled agents end. They start at
    their first use, and the next call starts them again, which takes about a second. Each has some
    65 MB."""
    drain_grace_s: NonNegativeSeconds = 10.0
    """The time that work in progress has for finishing when the mesh stops."""
    model: str = "rules"
    """The model of agents without a `model` of their own: `provider:name`, or `rules`, which works
    offline and without a key."""
    planner_model: str = ""
    """The model that supervisors plan with. The default is `model`."""
    embeddings: str = ""
    """An embedding model, `provider:name`: documents, and the examples of agents on a mesh without
    a model, are then found by meaning, too. `local:minilm` needs no provider. Addresses and keys
    are set as for models."""
    fallbacks: Texts = ()
    """Models to try in order when a model fails."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    """Addresses and limits of models. In the file only: `[models.PROVIDER]` and
    `[models."PROVIDER:NAME"]` tables."""
    agent_options: Mapping[str, AgentSettings] = field(default_factory=dict)
    """Settings of single agents. In the file only: `[agent.NAME]` tables. The variable
    TRUNKLINE_AGENT_TIMEOUTS sets `timeout_s` as `NAME=SECONDS,…`."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """Limits on calls between agents and on accounts. In the file only: `[policy.callers]` and
    `[policy.accounts.NAME]`. Without rules, all agents and authenticated callers may do all."""
    supervisors: Mapping[str, SupervisorSettings] = field(default_factory=dict)
    """Supervisors over agents of this mesh. In the file only: `[supervisor.NAME]` tables."""
    remotes: Mapping[str, RemoteAgentSettings] = field(default_factory=dict)
    """Remote A2A agents by their names on this mesh. In the file only: `[remote.NAME]` tables."""
    participants: Mapping[str, ParticipantSettings] = field(default_factory=dict)
    """Agents behind HTTP or WebSockets by their names on this mesh. In the file only:
    `[participant.NAME]` tables."""
    tree: TreeSettings = field(default_factory=TreeSettings)
    """Limits of a request and of all tasks that agents start for it: the table `[tree]`, and
    variables such as TRUNKLINE_TREE_DEPTH."""
    messaging: MessagingSettings = field(default_factory=MessagingSettings)
    """Messages between agents: the table `[messaging]`, and variables such as
    TRUNKLINE_MESSAGING_URL."""
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    """Metrics for Prometheus: the table `[metrics]`, and variables such as
    TRUNKLINE_METRICS_ADDRESS."""
    graphql: GraphQLSettings = field(default_factory=GraphQLSettings)
    """Messages and workflows by GraphQL: the table `[graphql]`, and variables such as
    TRUNKLINE_GRAPHQL_ENABLED."""
    page: PageSettings = field(default_factory=PageSettings)
    """The page at `/ui`: the table `[page]`, and variables such as TRUNKLINE_PAGE_ENABLED."""
    plugins: Mapping[str, PluginTable] = field(default_factory=dict)
    """Tables of installed agent plugins, by the plugin's name: `[NAME]` in the file, and variables
    TRUNKLINE_NAME_KEY."""
    task_limit: Annotated[int, Between(1, 1_000_000)] = 10_000
    """The number of tasks of one account on one host that run or wait to run. Further ones are
    refused. With several accounts, up to twice as many tasks share the host: an account may have
    as many of the places above the limit as remain free."""
    queue_limit: Annotated[int, Between(0, 1_000_000)] = 1000
    """The number of turns of one account that wait in one process for an agent at its concurrency
    limit. Further ones are refused. As with `task_limit`, a full queue has room for other accounts.
    Accounts are served in turn."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits of accounts and budgets: the table `[limits]`, and variables such as
    TRUNKLINE_LIMITS_RATE for limits of every account."""
    compact_after_s: NonNegativeSeconds = 3600.0
    """The time after a task's end for which its single events are retained. After that, only its
    final state is."""
    retain_s: NonNegativeSeconds = 30 * DAY_S
    """The time after its end for which a task is retained."""
    breaker_failures: Annotated[int, Between(1, 1000)] = 5
    """The number of consecutive failures that opens a peer's circuit breaker."""
    breaker_open_s: NonNegativeSeconds = 60.0
    """The time for which an open breaker refuses calls. Then it lets one call through."""
    breaker_successes: Annotated[int, Between(1, 1000)] = 2
    """The number of consecutive successes that closes a breaker again."""
    trace_limit: Annotated[int, Between(1, 10_000_000)] = 10_000
    """The number of traces to keep. The oldest are deleted first."""
    trace_age_s: Annotated[float, Between(1, 3650 * DAY_S)] = 7 * DAY_S
    """The time for which traces are retained."""
    capture_content: bool = False
    """Record messages, answers, and arguments and results of tools in spans, up to 8,192 characters
    each. Usual forms of secrets are removed."""
    capture_redact: Texts = ()
    """Further patterns (RE2) of text to remove from spans."""
    allow_webhook: Texts = ()
    """Further hosts that webhooks may reach, as HOST or HOST:PORT. By default webhooks reach only
    public hosts by https."""
    allow_fetch: Texts = ()
    """Further hosts that agents may fetch callers' files from, as HOST or HOST:PORT. By default
    files are fetched only from public hosts by https."""
    webhook_secret: str = field(default="", repr=False)
    """The secret that signs webhooks: `whsec_` and base64 (Standard Webhooks). Several are
    separated by spaces, the newest first. By default a secret is generated and stored in
    `data_dir`."""
    api_keys_file: FilePath | None = None
    """The file of API keys (`trunkline keys`). With it or `jwt_keys`, each call must be
    authenticated, and each account sees only its own tasks."""
    jwt_keys: str = ""
    """The JWKS of the tokens' issuer: a URL or a file."""
    jwt_issuer: str = ""
    """The required `iss` of tokens."""
    jwt_audience: str = ""
    """The required `aud` of tokens: this mesh."""
    jwt_algorithms: Texts = ("RS256", "ES256", "EdDSA")
    """The allowed signature algorithms of tokens. Only public-key algorithms are possible."""
    jwt_account_claim: str = "sub"
    """The claim that names a token's account."""
    jwt_account_prefix: str = "jwt:"
    """The prefix that is put before the claim's value to form the account, so that a token never
    gets the tasks of an API key by its name alone. Without a prefix, a token has the account of the
    API keys with the same name."""
    jwt_leeway_s: NonNegativeSeconds = 30.0
    """The tolerated difference between the issuer's clock and ours."""
    scopes: Mapping[str, ScopeSettings] = field(default_factory=dict)
    """The scopes of tokens and what each permits: `[scope.NAME]` tables, and the variable
    TRUNKLINE_SCOPES as JSON. Without any, every valid token permits everything."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """TLS of the bridge: the table `[tls]`, and variables such as TRUNKLINE_TLS_CERTIFICATE."""
    failed_credentials_per_minute: Annotated[int, Between(0, 1_000_000)] = 60
    """The number of wrong credentials that one address, or one expired key or token, may send in a
    minute. Further requests with wrong credentials get 429. With 0, there is no limit."""
    anonymous: bool = False
    """Also accept unauthenticated callers. They share one account."""
    card_key: FilePath | None = None
    """A private key (PEM) that signs agent cards."""
    card_key_id: str = ""
    """The key's `kid`. The default is the key's thumbprint (RFC 7638)."""
    webhook_give_up_s: Annotated[float, Between(1, 365 * DAY_S)] = DAY_S
    """The time after which deliveries to a failing webhook stop. `trunkline webhooks` lists it."""
    audit: bool = True
    """Record all acts on tasks, approvals, webhooks and agents, with their actors (`trunkline
    audit`)."""
    audit_file: FilePath | None = None
    """The file of the audit log. The default is `audit.jsonl` in the private folder of
    `data_dir`."""
    audit_reads: bool = False
    """Also record acts that change nothing, such as reading a task."""
    audit_size_bytes: Annotated[int, Between(64 * 1024, 1 << 40)] = 16 * 1024 * 1024
    """The size at which the audit log continues in a new file."""
    audit_age_s: Annotated[float, Between(1, 3650 * DAY_S)] = 30 * DAY_S
    """The age at which the audit log continues in a new file."""
    audit_files: Annotated[int, Between(2, 100_000)] = 12
    """The number of files of the audit log to keep. The oldest are deleted first."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """The lowest level that is logged to stderr."""
    log_format: Literal["plain", "json"] = "plain"
    """Lines for people, or one JSON object a line."""

    @property
    def ping_limit_s(self) -> float:
        """The longest silence of a peer: `ping_s`, or three quarters of the lease."""
        return self.ping_s or self.lease_s * 3 / 4

    @property
    def requires_credentials(self) -> bool:
        """True if the bridge serves authenticated callers only."""
        has_credentials = self.api_keys_file or self.jwt_keys or self.tls.client_roots
        return bool(has_credentials) and not self.anonymous

    def agent_timeout_s(self, agent: str) -> float | None:
        """Return the time limit of an agent's tasks in seconds, if its table sets one."""
        options = self.agent_options.get(agent)
        return options.timeout_s if options else None

    def agent_view(self, agent: str) -> Literal["detailed", "plain"]:
        """Return the view of an agent's tasks, from its table or else `view`."""
        options = self.agent_options.get(agent)
        return (options.view if options else None) or self.view


DEFAULTS: Final = Settings()
"""The settings of a mesh that sets nothing. Code that takes single settings as arguments has their
defaults from here, so that each default stands in one place."""

TABLE_VARIABLES: Final = {
    f"{ENV_PREFIX}{name}_{key.name}".upper(): (name, key.name)
    for name, table in (
        ("graphql", GraphQLSettings),
        ("limits", LimitSettings),
        ("messaging", MessagingSettings),
        ("metrics", MetricsSettings),
        ("page", PageSettings),
        ("tls", TlsSettings),
        ("tree", TreeSettings),
    )
    for key in fields(table)
    # A table within the table has no variable.
    if key.default_factory is MISSING
}
"""The variables of keys in tables such as `[tls]`: the setting and the key, by variable."""
