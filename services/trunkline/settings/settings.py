"""What can be set: names, defaults and what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trunkline.settings.addresses import HostPort
from trunkline.settings.sections import (
    AgentSettings,
    ModelSettings,
    PluginTable,
    RemoteAgentSettings,
    SupervisorSettings,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a mesh, by name in `trunkline.toml` and as TRUNKLINE_NAME in the environment."""

    http: HostPort = HostPort("127.0.0.1", 8000)
    """Where the bridge serves A2A over HTTP."""
    a2a_grpc: HostPort = HostPort("127.0.0.1", 50052)
    """Where the bridge serves A2A over gRPC."""
    mesh: HostPort = HostPort("127.0.0.1", 50051)
    """Where the mesh serves gRPC: registry, traces, OTLP; in one process also tasks and tools."""
    listen: HostPort = HostPort("127.0.0.1", 0)
    """Where agents or tools in a process of their own serve gRPC. Port 0 picks one."""
    advertise: str = ""
    """Where the others on the mesh reach this process: HOST or HOST:PORT; empty: where it listens.
    What listens on all addresses of a machine has to say one."""
    data_dir: Path = Path(".trunkline")
    """Folder of journals and traces. In the file, a relative path starts at the file's folder."""
    mcp_file: Path | None = None
    """MCP servers in the usual `mcpServers` form; none: those that ship with Trunkline."""
    agents: tuple[str, ...] = ()
    """Agents to run beside the bundled ones: MODULE:NAME, in a variable separated by commas."""
    default_agent: str = "supervisor"
    """Who answers at `/`."""
    insecure: bool = False
    """Listen on other than loopback addresses although callers aren't authenticated."""
    public_url: str = ""
    """How clients reach the bridge, for agent cards; empty: as each request came in."""
    public_grpc: str = ""
    """How clients reach the bridge over gRPC, HOST:PORT, for agent cards; empty: by the address
    where it listens."""
    lease_s: float = 10.0
    """Hosts and tasks are taken for dead after this. Shorter finds the dead sooner and, on a busy
    machine, takes the slow for dead."""
    ping_s: float = 0.0
    """A peer that doesn't answer for so long is taken for gone; 0: three quarters of the lease."""
    flush_interval_ms: float = 4.0
    """Least time between two batches of text of one task. 0 sends every piece alone: costly."""
    strict_versions: bool = False
    """Take requests that name no version of A2A for v0.3, as the specification has it; else their
    method or path tells which version they are in."""
    body_limit_bytes: int = 4 * 1024 * 1024
    """Longest HTTP request body; longer ones get 413."""
    request_timeout_s: float = 30.0
    """How long an HTTP request may take to arrive; slower ones get 408."""
    connection_limit: int = 2000
    """Connections to the bridge at once, over HTTP and over gRPC each; more get 503 or are closed.
    A stream takes one over HTTP, and over gRPC shares its client's."""
    heartbeat_s: float = 15.0
    """A comment goes out on an SSE stream that was silent for so long, so that proxies keep it."""
    patience_s: float = 30.0
    """How long a stream or a waiting call of the bridge stands while its task's host can't be
    reached; then it ends with an error. Takeovers of tasks take up to two leases."""
    auth_wait_s: float = 600.0
    """How long a message's stream stays open while its task waits for credentials; the task waits
    on, and can be subscribed to. Before A2A 1.0 a stream stays until its task goes on."""
    synchronous: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` that of the machine; commits cost more."""
    cancel_grace_s: float = 2.0
    """How long canceled code may clean up before its task is canceled without it."""
    prewarm: bool = False
    """Load what agents reason with at the start: the first question is a second or two faster, and
    an unused mesh about 55 MB larger."""
    drain_grace_s: float = 10.0
    """How long work under way may go on when the mesh is told to stop."""
    model: str = "rules"
    """What agents reason with unless theirs is set: `provider:name`, or `rules`, which needs no key
    and no network."""
    planner_model: str = ""
    """What supervisors plan with; empty: `model`."""
    fallbacks: tuple[str, ...] = ()
    """Models that are asked in turn when the one before can't answer."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    """Where models are and what one reply may take. Only in the file, as `[models.PROVIDER]` and
    `[models."PROVIDER:NAME"]` tables."""
    agent_options: Mapping[str, AgentSettings] = field(default_factory=dict)
    """What is set of single agents. Only in the file, as `[agent.NAME]` tables; `timeout_s` also by
    TRUNKLINE_AGENT_TIMEOUTS as `NAME=SECONDS,…`."""
    supervisors: Mapping[str, SupervisorSettings] = field(default_factory=dict)
    """Supervisors over agents of this mesh, by their names. Only in the file, as
    `[supervisor.NAME]` tables."""
    remotes: Mapping[str, RemoteAgentSettings] = field(default_factory=dict)
    """Remote A2A agents on this mesh, by the name that they have here. Only in the file, as
    `[remote.NAME]` tables with `url`."""
    plugins: Mapping[str, PluginTable] = field(default_factory=dict)
    """Tables of installed agent plugins, by the plugin's name: `[NAME]` in the file, and variables
    TRUNKLINE_NAME_KEY."""
    task_limit: int = 10_000
    """Tasks of one host that run or wait for their turn; more are refused."""
    queue_limit: int = 1000
    """Turns that wait for an agent which is at its concurrency limit; more are refused."""
    compact_after_s: float = 3600.0
    """How long after its end a task keeps its single deltas; then it is its outcome alone."""
    retain_s: float = 30 * 24 * 3600.0
    """How long after its end a task is kept at all."""
    breaker_failures: int = 5
    """So many failures in a row, and a peer isn't called for a while."""
    breaker_open_s: float = 60.0
    """How long it isn't called then; after that, one call tries it."""
    breaker_successes: int = 2
    """So many successes in a row, and it is called as before."""
    trace_limit: int = 10_000
    """How many traces are kept; the oldest go first."""
    trace_age_s: float = 7 * 24 * 3600.0
    """How long traces are kept."""
    allow_webhook: tuple[str, ...] = ()
    """Hosts, as HOST or HOST:PORT, that webhooks may lead to although they aren't public or speak
    no https."""
    allow_fetch: tuple[str, ...] = ()
    """Hosts, as HOST or HOST:PORT, that agents may fetch files from that callers name by their
    URLs, although they aren't public or speak no https."""
    webhook_secret: str = field(default="", repr=False)
    """What signs webhooks: whsec_ and base64 (Standard Webhooks); several are separated by spaces,
    the new one first. Empty: one is made once and kept in `data_dir`."""
    api_keys_file: Path | None = None
    """Who may call, by API key (`trunkline keys`). With it or `jwt_keys`, every call has to say who
    makes it, and each account sees only its own tasks."""
    jwt_keys: str = ""
    """Who may call, by token: the JWKS of their issuer, a URL or a file."""
    jwt_issuer: str = ""
    """What tokens say in `iss`."""
    jwt_audience: str = ""
    """What tokens say in `aud`: this mesh."""
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    """How tokens may be signed. Only public-key algorithms are possible."""
    jwt_account_claim: str = "sub"
    """The claim of a token that names its account."""
    jwt_leeway_s: float = 30.0
    """How far the issuer's clock may be from ours."""
    anonymous: bool = False
    """Let callers in that don't say who they are; they share the tasks of nobody in particular."""
    card_key: Path | None = None
    """A private key (PEM) that signs cards; their address is `public_url`, or where we listen."""
    card_key_id: str = ""
    """The key's `kid`; empty: its thumbprint (RFC 7638)."""
    webhook_give_up_s: float = 24 * 3600.0
    """A webhook that has failed for so long is given up on; `trunkline webhooks` shows it."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """What is logged, to stderr."""
    log_format: Literal["plain", "json"] = "plain"
    """Lines for people, or one JSON object a line."""

    @property
    def ping_limit_s(self) -> float:
        """How long a peer may stay silent: `ping_s`, or what stands for it."""
        return self.ping_s or self.lease_s * 3 / 4

    @property
    def requires_credentials(self) -> bool:
        """Whether the bridge serves only those that say who they are."""
        return bool(self.api_keys_file or self.jwt_keys) and not self.anonymous

    @property
    def agent_timeouts(self) -> dict[str, float]:
        """Seconds after which a task of an agent fails, for those agents that have such a limit."""
        limits = ((name, one.timeout_s) for name, one in self.agent_options.items())
        return {name: limit for name, limit in limits if limit is not None}
