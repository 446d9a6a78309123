"""What can be set and where it is found: a file, over it the environment, over that flags."""

import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin
from urllib.parse import urlsplit

from trunkline.errors import ConfigurationError

CONFIG_FILE = "trunkline.toml"
CONFIG_VARIABLE = "TRUNKLINE_CONFIG"
PREFIX = "TRUNKLINE_"


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where something listens. Port 0 lets the system pick one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`; an IPv6 host stands in brackets.

        Raises:
            ValueError: it isn't that; the text says what is wrong.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(f"port of {text!r} is not a number from 0 to 65535")
        if host.startswith("[") and host.endswith("]"):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif ":" in host:
            raise ValueError(f"{text!r}: an IPv6 host stands in brackets, like [::1]:{port}")
        return cls(host=host, port=int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than `localhost` may be anything."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_any(self) -> bool:
        """Whether it stands for all interfaces of the machine."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - looked for, not listened on

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """A remote A2A agent that is put on the mesh: a `[remote.NAME]` table of `trunkline.toml`."""

    url: str
    """Of the agent, or of its card."""
    token_env: str = ""
    """The variable that holds its bearer token."""
    api_key_env: str = ""
    """The variable that holds its API key."""
    api_key_header: str = "X-API-Key"
    """The header that the key goes in."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Other headers of each request."""
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
    """A peer that doesn't answer for so long is taken for gone; 0: half of the lease."""
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
    synchronous: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` that of the machine; commits cost more."""
    cancel_grace_s: float = 2.0
    """How long canceled code may clean up before its task is canceled without it."""
    prewarm: bool = False
    """Load what agents reason with at the start: the first question is a second or two faster, and
    an unused mesh about 55 MB larger."""
    drain_grace_s: float = 10.0
    """How long work under way may go on when the mesh is told to stop."""
    agent_timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds after which a task of an agent fails if its caller gave no deadline, or a later one.
    In the file `timeout_s` of `[agent.NAME]`; in a variable `NAME=SECONDS,…`."""
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    """Remote A2A agents on this mesh, by the name that they have here. Only in the file, as
    `[remote.NAME]` tables with `url`."""
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
        return self.ping_s or self.lease_s / 2

    @property
    def asks_callers(self) -> bool:
        """Whether the bridge serves only those that say who they are."""
        return bool(self.api_keys_file or self.jwt_keys) and not self.anonymous


# Least and most that make sense; what isn't here may be any number from 0 on.
_BOUNDS: dict[str, tuple[float, float]] = {
    "lease_s": (0.1, 3600),
    "ping_s": (0, 600),
    "agent_timeouts": (0.001, 365 * 24 * 3600),
    "task_limit": (1, 1_000_000),
    "queue_limit": (0, 1_000_000),
    "breaker_failures": (1, 1000),
    "breaker_successes": (1, 1000),
    "flush_interval_ms": (0, 5),
    "body_limit_bytes": (1024, 1 << 30),
    "request_timeout_s": (0.1, 3600),
    "connection_limit": (1, 1_000_000),
    "heartbeat_s": (0.1, 3600),
    "patience_s": (0, 3600),
    "trace_limit": (1, 10_000_000),
    "webhook_give_up_s": (1, 365 * 24 * 3600),
    "trace_age_s": (1, 10 * 365 * 24 * 3600),
}


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings of a process.

    They come from `trunkline.toml` in `folder` (the current one), or the file that TRUNKLINE_CONFIG
    names; over it the environment; over that `flags`, where None means not given.

    Raises:
        ConfigurationError: it names the file and key, variable or flag that is wrong.
    """
    environment = os.environ if environment is None else environment
    found = _from_file(environment, folder or Path())
    found |= _from_environment(environment)
    for name, value in (flags or {}).items():
        if value is not None:
            found[name] = _read(name, value, where=_FLAGS.get(name, f"--{name}"))
    return Settings(**found)


# What else makes it safe to be reachable.
_OR_ASK = dict.fromkeys(
    ("http", "a2a-grpc"), "; or let callers say who they are (api_keys_file or jwt_keys)"
)


def check_exposure(name: str, address: HostPort, *, is_allowed: bool) -> None:
    """Refuse to be reachable from other machines by accident: callers aren't authenticated.

    Raises:
        ConfigurationError: the address, that of setting `name`, is not loopback, and may not be.
    """
    if not (address.is_loopback or is_allowed):
        problem = (
            f"{address} can be reached from other machines, and callers are not authenticated; "
            "use 127.0.0.1, or give --insecure if that is what you want" + _OR_ASK.get(name, "")
        )
        raise ConfigurationError(where=f"--{name}", problem=problem)


def reachable(address: str) -> str:
    """Return where this machine reaches an address that may stand for all its interfaces."""
    bound = HostPort.parse(address)
    return str(HostPort("127.0.0.1", bound.port)) if bound.is_any else address


def _from_file(environment: Mapping[str, str], folder: Path) -> dict[str, Any]:
    named = environment.get(CONFIG_VARIABLE)
    path = Path(named) if named else folder / CONFIG_FILE
    if not named and not path.exists():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigurationError(where=str(path), problem=problem) from error
    except ValueError as error:
        raise ConfigurationError(where=str(path), problem=f"is not TOML: {error}") from error
    if "agent" in table:
        table["agent_timeouts"] = _timeouts_of(table.pop("agent"), where=f"{path}: agent")
    if "remote" in table:
        table["remotes"] = _remotes_of(table.pop("remote"), where=f"{path}: remote")
    found = {name: _read(name, value, where=f"{path}: {name}") for name, value in table.items()}
    for name, value in found.items():
        if isinstance(value, Path):
            found[name] = path.parent / value
    return found


def _timeouts_of(agents: object, *, where: str) -> dict[str, object]:
    """The timeouts in the `[agent.NAME]` tables of a file."""
    timeouts: dict[str, object] = {}
    if not isinstance(agents, dict):
        raise ConfigurationError(where=where, problem="write [agent.NAME] and under it timeout_s")
    for name, table in agents.items():
        if not isinstance(table, dict) or set(table) != {"timeout_s"}:
            problem = "of an agent only timeout_s can be set"
            raise ConfigurationError(where=f"{where}.{name}", problem=problem)
        timeouts[name] = table["timeout_s"]
    return timeouts


def _remotes_of(tables: object, *, where: str) -> dict[str, Remote]:
    """The `[remote.NAME]` tables of a file."""
    if not isinstance(tables, dict):
        raise ConfigurationError(where=where, problem="write [remote.NAME] and under it url")
    return {name: read_remote(given, where=f"{where}.{name}") for name, given in tables.items()}


def read_remote(given: object, *, where: str) -> Remote:
    """Return what a table says of a remote agent.

    Raises:
        ConfigurationError: something in it is wrong, or the URL is missing.
    """
    if not isinstance(given, dict) or "url" not in given:
        raise ConfigurationError(where=where, problem="write the agent's url there")
    kinds = {one.name: one.type for one in fields(Remote)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            problem = f"no such setting; there are: {', '.join(sorted(kinds))}"
            raise ConfigurationError(where=f"{where}.{name}", problem=problem)
        try:
            found[name] = _READERS[kinds[name]](value)
            if name == "url":
                _check_url(found[name])
            if name.endswith("_s") and not 0 < found[name] <= 24 * 3600:
                raise ValueError(f"{found[name]} is not between 0 and {24 * 3600}")
        except ValueError as error:
            raise ConfigurationError(where=f"{where}.{name}", problem=str(error)) from error
    return Remote(**found)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    # Other names are left alone: clusters put variables like TRUNKLINE_SERVICE_HOST there.
    found: dict[str, Any] = {}
    for name in _KINDS:
        variable = PREFIX + name.upper()
        if text := environment.get(variable):
            found[name] = _read(name, text, where=variable)
    return found


def _read(name: str, value: object, *, where: str) -> Any:  # noqa: ANN401 the field's type, checked here
    try:
        read = _READERS[_KINDS[name]]
    except KeyError:
        known = ", ".join(sorted(_KINDS))
        problem = f"no such setting; there are: {known}"
        raise ConfigurationError(where=where, problem=problem) from None
    try:
        result = read(value)
        _check(name, result)
    except ValueError as error:
        raise ConfigurationError(where=where, problem=str(error)) from error
    return result


def _check(name: str, value: object) -> None:
    kind = _KINDS[name]
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = ", ".join(get_args(kind))
        raise ValueError(f"{value!r} is none of: {choices}")
    least, most = _BOUNDS.get(name, (0, float("inf")))
    numbers: list[Any] = list(value.values()) if isinstance(value, dict) else [value]
    for number in numbers:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if is_number and not least <= number <= most:
            raise ValueError(f"{number} is not between {least} and {most}")
    if name == "public_url" and value:
        _check_url(str(value))
    if name == "public_grpc" and value:
        HostPort.parse(str(value))


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL that starts with http:// or https://")


def _address(value: object) -> HostPort:
    return value if isinstance(value, HostPort) else HostPort.parse(_text(value))


def _path(value: object) -> Path:
    if value == "":
        raise ValueError("expected a path, got nothing")
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {value!r}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(piece.strip() for piece in value.split(",") if piece.strip())
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of texts, got {value!r}")
    return tuple(_text(item) for item in value)


def _numbers_by_name(value: object) -> dict[str, float]:
    if isinstance(value, str):
        pairs = [piece.partition("=") for piece in _texts(value)]
        value = {name.strip(): number.strip() for name, _, number in pairs}
    if not isinstance(value, dict):
        raise ValueError(f"expected NAME=NUMBER, got {value!r}")
    return {_text(name): _number(number) for name, number in value.items()}


def _texts_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"expected NAME = TEXT, got {value!r}")
    return {_text(name): _text(text) for name, text in value.items()}


def _remotes(value: object) -> dict[str, Remote]:
    if not isinstance(value, dict):
        raise ValueError("write them as [remote.NAME] tables into trunkline.toml")
    return value


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    spelled = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.lower() in spelled:
        return spelled[value.lower()]
    raise ValueError(f"expected true or false, got {value!r}")


def _whole(value: object) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(number)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a number, got {value!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"expected a number, got {value!r}") from None
    if number != number or number in {float("inf"), float("-inf")}:
        raise ValueError(f"expected a number, got {value!r}")
    return number


# Flags that aren't called as the setting is.
_FLAGS = {
    "a2a_grpc": "--a2a-grpc",
    "data_dir": "--data",
    "mcp_file": "--mcp",
    "agents": "--agent",
    "default_agent": "--default",
    "allow_webhook": "--allow-webhook",
}
_KINDS: dict[str, Any] = {one.name: one.type for one in fields(Settings)}
_READERS: dict[Any, Callable[[object], object]] = {
    HostPort: _address,
    Path: _path,
    Path | None: _path,
    str: _text,
    Literal["normal", "full"]: _text,
    Literal["debug", "info", "warning", "error"]: _text,
    Literal["plain", "json"]: _text,
    tuple[str, ...]: _texts,
    Mapping[str, float]: _numbers_by_name,
    Mapping[str, str]: _texts_by_name,
    Mapping[str, Remote]: _remotes,
    bool: _truth,
    int: _whole,
    float: _number,
}
