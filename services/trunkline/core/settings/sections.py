"""Tables of `trunkline.toml`: agents, models, supervisors, remote agents, plugins and policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from trunkline.core.settings.addresses import HostPort
from trunkline.core.settings.constraints import (
    DAY_S,
    Between,
    FilePath,
    KeyName,
    OptionalAddress,
    OptionalRedisUrl,
    OptionalUrl,
    ParticipantUrl,
    Seconds,
    Texts,
    Url,
)

# pydantic then refuses keys that a table does not have.
_NO_OTHER_KEYS: Final = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """The table `[agent.NAME]` of one agent."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    timeout_s: Annotated[float, Between(0.001, 365 * DAY_S)] | None = None
    """The agent's tasks fail after this time unless the caller's deadline is earlier."""
    model: str = ""
    """The agent's model as `provider:name`. By default the agent uses the mesh's model."""
    fallbacks: Texts = ()
    """Models to try in order when the agent's model fails. By default the mesh's fallbacks are
    tried."""
    check: bool | None = None
    """Let a model judge answers before they are final. By default this is on if the agent's model
    can judge."""
    allow_tools: Texts = ()
    """Patterns of the only tools that the agent may use: SERVER/TOOL or TOOL, `*` is a wildcard."""
    deny_tools: Texts = ()
    """Patterns of tools that the agent may not use. They take precedence over `allow_tools`."""
    a2a_grpc: HostPort | None = None
    """Another address of the bridge for A2A over gRPC, which serves this agent only. Clients of
    v0.3 need it, because they can't name an agent. By default the agent is only at the address of
    all agents."""
    public_grpc: OptionalAddress = ""
    """The gRPC address of this agent in agent cards, HOST:PORT. The default is the listening
    address."""
    view: Literal["detailed", "plain"] | None = None
    """The view of the agent's tasks for A2A clients. The default is the mesh's view."""
    options: Mapping[str, object] = field(default_factory=dict)
    """The agent's own settings, table `[agent.NAME.options]`. The agent's type validates them."""
    instructions: str = ""
    """Instructions for the agent's model, added to the instructions of its package."""
    description: str = ""
    """A description of the agent's work. With a description, the table defines a new agent, so no
    package, MCP server or other table may define an agent with the same name."""
    servers: Texts = ()
    """MCP servers whose tools an agent that the table defines may call."""
    tags: Texts = ()
    """Words by which supervisors without a model recognise requests for it."""
    examples: Texts = ()
    """Requests that it can answer."""

    @property
    def defines_agent(self) -> bool:
        """True if the table defines a new agent."""
        return bool(self.description)

    def allows_tool(self, server: str, tool: str) -> bool:
        """Return True if the agent may see and call a tool."""

        def matches(pattern: str) -> bool:
            name = f"{server}/{tool}" if "/" in pattern else tool
            return fnmatchcase(name, pattern)

        is_allowed = not self.allow_tools or any(map(matches, self.allow_tools))
        return is_allowed and not any(map(matches, self.deny_tools))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """The table `[models."openai:NAME"]` of one model, or `[models.openai]` of a provider.

    A provider's table holds the defaults of its models.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    base_url: OptionalUrl | None = None
    """The address of the provider's API. The default is the provider's own address."""
    api_key_env: str | None = None
    """The variable that holds the key. The default is the provider's usual variable. With an empty
    text, no key is sent."""
    timeout_s: Seconds | None = None
    """The time limit of one reply. The default is five minutes."""
    first_token_s: Seconds | None = None
    """The longest silence before or within a reply. The default is one minute."""
    max_tokens: Annotated[int, Between(1, 10_000_000)] | None = None
    """The longest reply. The default is 4096."""
    turn_tokens: Annotated[int, Between(1, 1_000_000_000)] | None = None
    """The tokens that one turn may read and write. The default is 200 000."""
    temperature: Annotated[float, Between(0, 2)] | None = None
    """The sampling temperature. By default the provider chooses it."""
    input_price: Annotated[float, Between(0, 1_000_000)] | None = None
    """The price of a million tokens that the model reads, in US dollars. The default is 0."""
    output_price: Annotated[float, Between(0, 1_000_000)] | None = None
    """The price of a million tokens that the model writes, in US dollars. The default is 0."""
    traceparent: bool | None = None
    """Send the trace's `traceparent` (W3C Trace Context) with requests. By default it is sent.
    Google's client never sends it. Anthropic's client has a separate variable for it."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further arguments of the provider's LangChain class, passed on unchanged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteEndpointSettings:
    """The address of a remote A2A agent, and the limits on exchanges with it."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    url: Url
    """The URL of the agent or of its card."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each request."""
    hosts: Texts = ()
    """Addresses, besides the card's own host and port, that the card may name: each as HOST, for
    any port, or HOST:PORT. They get messages and credentials."""
    bindings: Texts = ()
    """The only bindings to use: JSONRPC, HTTP+JSON, GRPC. By default the first usable binding of
    the card is used."""
    versions: Texts = ()
    """The only protocol versions to use: 1.0, 0.3. By default the first usable version of the card
    is used."""
    idle_s: Seconds = 300.0
    """A task without events for this long is canceled at the remote agent and fails here."""
    patience_s: Seconds = 30.0
    """The time for which a task retries an unreachable remote agent."""
    refresh_s: Seconds = 300.0
    """The interval between reads of the agent's card."""
    pin: Literal["report", "refuse"] = "report"
    """`report` logs once that the agent's card leads elsewhere than at first, or declares other
    authentication, keys or skills. `refuse` does not use such a card until the file of its pin is
    deleted."""
    card_keys: FilePath | None = None
    """A file of public keys, JWKS or PEM. One of these keys must have signed the card. Without this
    file the card may be unsigned, unless an earlier card of the agent was signed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteAgentSettings(RemoteEndpointSettings):
    """The table `[remote.NAME]` of a remote agent that is on the mesh."""

    token_env: str = ""
    """The variable that holds the bearer token."""
    api_key_env: str = ""
    """The variable that holds the API key."""
    api_key_header: str = "X-API-Key"
    """The header that carries the API key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParticipantSettings:
    """The table `[participant.NAME]` of an agent behind HTTP or a WebSocket that is on the mesh.

    The agent gets messages as JSON and needs no A2A.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    url: ParticipantUrl
    """The URL that messages are sent to: http:// or https:// for a POST each, ws:// or wss:// for
    one connection. Credentials don't belong here."""
    description: str = ""
    """Its purpose. Supervisors ask it if this is set."""
    tags: Texts = ()
    """Words by which supervisors recognise its requests."""
    types: Texts = ()
    """The types of messages that the agent accepts. By default it accepts all types."""
    reply_type: str = "answer"
    """The type of a reply that is a JSON object without one."""
    token_env: str = ""
    """The variable that holds a bearer token."""
    token_file: FilePath | None = None
    """The file that holds it."""
    api_key_env: str = ""
    """The variable that holds an API key."""
    api_key_file: FilePath | None = None
    """The file that holds it."""
    api_key_header: str = "X-API-Key"
    """The header that carries the API key."""
    username: str = ""
    """The user of basic authentication."""
    password_env: str = ""
    """The variable that holds the user's password."""
    password_file: FilePath | None = None
    """The file that holds it."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers."""
    headers_env: Mapping[str, str] = field(default_factory=dict)
    """Further headers, each with the variable that holds its value."""
    headers_file: Mapping[str, str] = field(default_factory=dict)
    """Further headers, each with the file that holds its value."""
    timeout_s: Seconds = 30.0
    """The time for an answer."""
    retries: Annotated[int, Between(0, 100)] = 3
    """The number of further tries when it can't be reached, fails, or is too slow."""
    backoff_s: Annotated[float, Between(0.001, 3600)] = 1.0
    """The wait before the first retry. Each further one doubles it; up to half is cut at random."""
    max_backoff_s: Annotated[float, Between(0.001, DAY_S)] = 30.0
    """The longest wait between two tries."""
    content_bytes: Annotated[int, Between(1024, 64 * 1024 * 1024)] = 1024 * 1024
    """The largest answer."""
    concurrency: Annotated[int, Between(1, 100_000)] = 16
    """The number of messages that it gets at once from one process."""
    breaker_failures: Annotated[int, Between(1, 1000)] | None = None
    """The number of consecutive failures that opens its circuit breaker. The default is the mesh's
    number."""
    breaker_open_s: Seconds | None = None
    """The time for which an open breaker refuses calls. The default is the mesh's time."""
    breaker_successes: Annotated[int, Between(1, 1000)] | None = None
    """The number of consecutive successes that closes an open breaker. The default is the mesh's
    number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeSettings:
    """The table `[tree]`: limits of a request and of all tasks that agents start for it.

    A task gets the smaller limits of its caller and of its host.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    depth: Annotated[int, Between(1, 64)] = 8
    """The number of tasks in a chain of calls, the first one included."""
    circles: Annotated[int, Between(0, 63)] = 1
    """The number of times that an agent may be asked again by agents below it, at any depth.
    Supervisors of a mesh never ask an agent above them. Agents with their own code and remote
    agents may."""
    children: Annotated[int, Between(1, 100_000)] = 200
    """The number of tasks that one task may start, over all its turns."""
    tasks: Annotated[int, Between(1, 1_000_000)] = 2000
    """The number of tasks of a request, the first one included."""
    tokens: Annotated[int, Between(1, 1_000_000_000_000)] | None = None
    """The number of tokens that the models of a request may read and write. By default there is no
    limit."""
    cost: Annotated[float, Between(0.000001, 1_000_000)] | None = None
    """The price of those tokens in US dollars, by `input_price` and `output_price` of the models.
    By default there is no limit."""
    timeout_s: Annotated[float, Between(0.001, 365 * DAY_S)] | None = None
    """The time after which a request and all its tasks fail. The default is the time limit of the
    request's agent, if the agent has one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsSettings:
    """The table `[tls]`: TLS of the bridge, for A2A over HTTP and over gRPC.

    Changed files are used within a second, without a restart.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    certificate: FilePath | None = None
    """The bridge's certificate and its intermediate certificates (PEM). Without this file, TLS is
    off."""
    key: FilePath | None = None
    """The certificate's private key (PEM), which only its owner may read."""
    client_roots: FilePath | None = None
    """The roots (PEM) of callers' certificates. With it, a certificate authenticates its caller.
    Over gRPC, callers are asked for one only if it is required."""
    require_client_certificate: bool = False
    """Refuse connections without a certificate that `client_roots` verify."""
    account_prefix: str = "cert:"
    """The prefix that is put before the name in a certificate to form the account. Without a
    prefix, the certificate has the account of an API key with the same name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopeSettings:
    """The table `[scope.NAME]`: the permissions of a scope of tokens."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    agents: Texts = ()
    """The agents, by name or pattern with `*`. By default all agents are allowed."""
    methods: Texts = ()
    """The methods of A2A v1.0, GetArtifact for files, or `read` for all read-only methods. By
    default all methods are allowed."""


@dataclass(frozen=True, slots=True)
class PluginTable:
    """The table `[NAME]` of an installed agent plugin. The plugin's own type validates it."""

    values: Mapping[str, object]
    where: str = ""
    """The file and the table's name, for errors."""
    folder: Path = Path()
    """The folder that relative paths in the table start at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorSettings:
    """The table `[supervisor.NAME]`, which adds a supervisor to the mesh.

    The default supervisor is named `supervisor`.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    agents: Texts = ()
    """Agents to choose from, other supervisors included. By default these are all agents with a
    description."""
    description: str = ""
    """The supervisor's purpose. Other supervisors ask it if this or `tags` is set."""
    tags: Texts = ()
    """Words by which other supervisors recognise its requests."""
    examples: Texts = ()
    """Requests that it can answer."""
    default_agent: str = ""
    """The agent for requests that match no agent clearly. By default the supervisor asks the
    user."""
    model: str = ""
    """The model that plans. The default is the mesh's `planner_model`."""
    instructions: str = ""
    """Further instructions for the planning model, for example which agent to ask for a subject."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountPolicy:
    """The table `[policy.accounts.NAME]` of one account; the name `*` is for all other accounts."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    agents: Texts | None = None
    """The only agents that users of the account may ask. By default they may ask all agents."""
    methods: Texts | None = None
    """The only methods of the mesh that may be called for the account, for example `GetTask`. By
    default all methods may be called."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySettings:
    """The table `[policy]`. Without rules, all agents and authenticated callers may do all."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    callers: Mapping[str, Texts] = field(default_factory=dict)
    """By agent, the only agents that may call it. Agents that are not listed may be called by all
    agents of the mesh. Users are not limited by this."""
    accounts: Mapping[str, AccountPolicy] = field(default_factory=dict)
    """Limits of accounts, by account. The name `*` is for accounts without a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphQLSettings:
    """The table `[graphql]`: messages and workflows by GraphQL at `/graphql`."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    enabled: bool = False
    """Serve it."""
    introspection: bool = False
    """Let clients read the schema, which is also in the documentation."""
    rollback: bool = False
    """Let callers choose the version of a workflow that new tasks of all accounts take."""
    depth: Annotated[int, Between(1, 30)] = 10
    """The number of fields inside each other."""
    cost: Annotated[int, Between(1, 10_000_000)] = 5000
    """The cost of one operation: 1 for each field and 10 more for each field that calls the mesh.
    The cost of a page's fields is multiplied by the page's `first`."""
    page_size: Annotated[int, Between(1, 1000)] = 100
    """The largest `first`."""
    timeout_s: Annotated[float, Between(0.1, 3600)] = 30.0
    """The time of a query or a mutation."""
    subscriptions: Annotated[int, Between(1, 10_000)] = 50
    """The operations that one WebSocket runs at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSettings:
    """The table `[page]`: the page of the bridge at `/ui`."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    enabled: bool = True
    """Serve it."""
    operators: Texts = ()
    """The accounts that see the whole mesh: hosts, edges, all traces, webhooks and the audit log.
    Other accounts see their own tasks and the agents that they may call. If the bridge needs no
    credentials, all callers are operators."""
    inspect_allow: Texts = ()
    """Hosts that the inspector may call by http or at a private address, each as HOST or
    HOST:PORT. The inspector may always call public hosts by https."""
    oidc_issuer: str = ""
    """The issuer that people sign in at, by OpenID Connect: an URL. `jwt_issuer` accepts the
    issuer's tokens. Without an issuer, people sign in with an API key or a token."""
    oidc_client_id: str = ""
    """The id of the page at the issuer: a public client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsSettings:
    """The table `[metrics]`: metrics for Prometheus.

    The bridge serves metrics at `/metrics` of its address.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    address: HostPort | None = None
    """The address where this process serves its own `/metrics`. By default only the bridge serves
    metrics."""
    public: bool = False
    """Make the metrics public. The bridge then serves them without credentials, and `address` may
    be an address that other machines reach."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagingSettings:
    """The table `[messaging]`: messages between agents."""

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    mode: Literal["auto", "local", "distributed"] = "auto"
    """The place of messages: `local` in a file of the data directory, `distributed` in Redis
    Streams, `auto` there if `url` is set and answers at the start, else in the database of `store`,
    else in the file."""
    url: OptionalRedisUrl = field(default="", repr=False)
    """The address of Redis or Valkey: redis://, rediss:// or unix://, with user and password."""
    stream: KeyName = "a2a_messages"
    """The prefix of the keys in Redis. Meshes that share a server need different ones."""
    group: KeyName = "workers"
    """The consumer group."""
    lease_s: Annotated[float, Between(0.5, 300)] = 10.0
    """If processes share the messages, a process that has not answered for this time is considered
    dead, and another process continues its deliveries."""
    replicas: Annotated[int, Between(0, 16)] = 0
    """In the distributed mode, the replicas of the server that must have a message before it is
    accepted, so that a failover to a replica does not lose the message. With 0, no replica is
    waited for."""
    attempts: Annotated[int, Between(1, 1000)] = 5
    """The attempts to deliver a message, before it is a dead letter."""
    backoff_s: Annotated[float, Between(0.01, 3600)] = 1.0
    """The wait before the second attempt. Each further one doubles it."""
    max_backoff_s: Annotated[float, Between(0.01, DAY_S)] = 30.0
    """The longest wait between two attempts."""
    concurrency: Annotated[int, Between(1, 100_000)] = 16
    """The messages that one agent handles at once. Messages that wait for a person don't count."""
    host_patience_s: Annotated[float, Between(1, DAY_S)] = 600.0
    """An attempt has failed if its host is gone for so long, and no other one has its journal."""
    queue_limit: Annotated[int, Between(1, 100_000_000)] = 100_000
    """The deliveries that may wait. More are refused."""
    age_s: Annotated[float, Between(DAY_S, 3650 * DAY_S)] = 30 * DAY_S
    """Messages expire after this time, unless they say when, and are deleted after it."""
    middleware: Texts = ()
    """Classes that see each message, `module:name`, in this order."""
