"""Configuration of the tool adapter: the `mcpServers` file, and the adapter's own settings."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trunkline.core.names import NAME_RULE, is_name
from trunkline.core.patterns import PATTERN_LIMIT_CHARS, InvalidPatternError, compile_pattern
from trunkline.errors import ConfigurationError, ToolServerUnavailableError
from trunkline.mesh.client.breaker import DEFAULT_SETTINGS, BreakerSettings
from trunkline.tools.config_file import ConfigFile, first_problem
from trunkline.v1 import agent_card_pb2

# Words in tool names that say too little to be tags.
_STOP_WORDS = {"a", "all", "and", "by", "do", "for", "from", "get", "in", "list", "of", "run"}
_STOP_WORDS |= {"server", "set", "the", "to", "tool", "with"}

_UNUSABLE_NAME: Final = "the name is not usable as an agent name; set trunkline.agent.name"


class _Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


def _check_pattern(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except InvalidPatternError as error:
        problem = "not a regular expression of RE2: {problem}"
        raise PydanticCustomError("pattern", problem, {"problem": str(error)}) from error
    return pattern


_Pattern: TypeAlias = Annotated[
    str, Field(max_length=PATTERN_LIMIT_CHARS), AfterValidator(_check_pattern)
]


class _ArgumentRule(_Strict):
    """An argument of a `MatchRule` that is more than a template or a literal."""

    source: Annotated[str | None, Field(alias="from")] = None
    map: dict[str, Any] = {}
    type: Literal["string", "integer", "number", "boolean"] = "string"
    default: Any = None

    @model_validator(mode="after")
    def _has_a_value(self) -> Self:
        if not self.model_fields_set & {"source", "default"}:
            raise PydanticCustomError("no_value", 'give "from" or "default"')
        return self


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    for name, rule in arguments.items():
        _check_argument(name, rule)
    return arguments


def _check_argument(where: str, rule: object) -> None:
    """Raise PydanticCustomError for an invalid rule. Each element of a list is a separate rule."""
    if isinstance(rule, list):
        for number, item in enumerate(rule):
            _check_argument(f"{where}.{number}", item)
    if isinstance(rule, dict):
        try:
            _ArgumentRule.model_validate(rule)
        except ValidationError as error:
            place, problem = first_problem(error)
            words = {"place": ".".join(map(str, (where, *place))), "problem": problem}
            raise PydanticCustomError("argument", "{place}: {problem}", words) from error


class MatchRule(_Strict):
    """A `trunkline/match` entry: a pattern for questions, and the tool call made from a match."""

    pattern: _Pattern
    """A regular expression in RE2's syntax, without distinction of case."""
    require: dict[str, _Pattern] = {}
    """Patterns that groups of `pattern` have to contain; group "0" is the whole match."""
    fallback: bool = False
    """Match only questions that no other tool matches."""
    arguments: Annotated[dict[str, Any], AfterValidator(_check_arguments)] = {}
    answer: str = ""


class ToolOverlay(_Strict):
    """Additions of the configuration to the declaration of one tool."""

    match: list[MatchRule] = []
    """Rules that come before the tool's own `trunkline/match`."""
    tags: list[str] = []
    approval: bool | None = None
    """Require a person's approval of each call. Without it, the server's `approval` applies."""

    def dump_match(self) -> list[dict[str, Any]]:
        """Return `match` in the form of a tool's declaration."""
        return [rule.model_dump(exclude_unset=True) for rule in self.match]


class AgentOverlay(_Strict):
    """The agent card of a server's agent."""

    name: str = ""
    """The agent's name; by default the server's name, in lower-case letters with hyphens."""
    description: str = ""
    tags: list[str] = []
    examples: list[str] = []

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name and not is_name(name):
            raise PydanticCustomError("name", "{rule}", {"rule": f"it must be {NAME_RULE}"})
        return name


class OAuthOverlay(_Strict):
    """OAuth to a remote server (MCP, authorization). Texts may have `${NAME}`, as in `headers`."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """The way to tokens: a person's sign-in, or the credentials of the client alone."""
    client_id: str = ""
    """The id of a client that was registered with the authorization server. Without it, the mesh
    registers itself."""
    client_secret: Annotated[str, Field(repr=False)] = ""
    private_key: Annotated[str, Field(repr=False)] = ""
    """A key in PEM, which signs assertions in place of a secret; only for client credentials."""
    algorithm: str = "RS256"
    """The algorithm of `private_key`, as JWT names it."""
    issuer: str = ""
    """The authorization server that may get the credentials. Without it, the authorization server
    that the tool server names may get them."""
    scopes: list[str] = []
    """Scopes to ask for, besides the scopes that the server demands."""
    client_metadata_url: str = ""
    """The https URL of a client metadata document, in place of a registration."""

    @field_validator("client_metadata_url")
    @classmethod
    def _check_metadata_url(cls, url: str) -> str:
        host, _, path = url.removeprefix("https://").partition("/")
        if url and not (url.startswith("https://") and host and path):
            raise PydanticCustomError("url", "it must be an https URL with a path")
        return url

    @model_validator(mode="after")
    def _check_grant(self) -> Self:
        if self.grant == "client_credentials":
            if not self.client_id or bool(self.client_secret) == bool(self.private_key):
                problem = 'client_credentials needs "client_id", and a secret or a key'
                raise PydanticCustomError("oauth", problem)
        elif self.private_key:
            problem = '"private_key" is only for client_credentials'
            raise PydanticCustomError("oauth", problem)
        return self


class ServerOverlay(_Strict):
    """The `trunkline` object of an entry. Other MCP clients ignore it."""

    agent: AgentOverlay | Literal[False] = AgentOverlay()
    tools: dict[str, ToolOverlay] = {}
    approval: Literal["always", "never", "declared"] = "declared"
    """Calls that need a person's approval. With "declared", these are the calls of tools whose
    annotations do not say that the tool is read-only. Tools without annotations need approval."""
    connect_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds from a server's start to its list of tools. Raise it for a server that is downloaded
    first."""
    call_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds that a call may take."""
    idle_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds without calls after which the server's process is stopped. It starts when its tools
    are listed or called for the first time, and the next call starts it again, which takes about a
    second. Only for servers without state between calls."""
    ca_file: Path | None = None
    """Certificate authorities for a remote server, in place of the system's."""
    oauth: OAuthOverlay | None = None
    """OAuth to a remote server. Without it, the entry's `headers` contain the credentials."""


class ServerConfig(BaseModel):
    """One entry of `mcpServers`: a command to start, or the URL of a remote server.

    Keys of other MCP clients are ignored. `ConfigFile.check_keys` finds misspelled ones.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)

    command: str = ""
    args: list[str] = []
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    """`${NAME}` is replaced by our environment variable; also in `url` and `headers`."""
    cwd: Path | None = None
    """The folder in which the command starts. A relative path starts at the file's folder."""
    url: Annotated[str, Field(repr=False)] = ""
    """The URL of a streamable HTTP endpoint."""
    headers: Annotated[dict[str, str], Field(repr=False)] = {}
    """Headers of each request to `url`."""
    type: str = ""
    trunkline: ServerOverlay = ServerOverlay()

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        # The value of a variable is read when the server is started.
        if url and not url.startswith(("http://", "https://", "${")):
            raise PydanticCustomError("url", "it must start with http:// or https://")
        return url

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise PydanticCustomError("server", 'give either "command" or "url"')
        if self.command and self.trunkline.oauth is not None:
            raise PydanticCustomError("oauth", '"oauth" is only for a server with "url"')
        if self.type == "sse":
            raise PydanticCustomError(
                "type", "HTTP with SSE is a transport of 2024; give the URL of its streamable HTTP"
            )
        return self

    def fingerprint(self) -> str:
        """Return a text that changes with the command or the endpoint."""
        place = json.dumps([self.command, self.args, str(self.cwd or ""), self.url])
        return hashlib.sha256(place.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The MCP servers of a mesh, by name."""

    servers: Mapping[str, ServerConfig]
    disabled: frozenset[str] = frozenset()
    """Names of disabled entries. They also disable the servers of plugins."""
    plugin_servers: Mapping[str, str] = field(default_factory=dict)
    """The agent of the plugin that brings a server, by server. No other agent is made for the
    server, even if an entry of the file replaces it."""
    replaced: frozenset[str] = frozenset()
    """Servers of plugins that entries of the file replace or extend."""

    @property
    def configured(self) -> frozenset[str]:
        """Names of the file's entries."""
        return self.disabled | self.servers.keys()

    def add_plugin_servers(self, agent: str, servers: Mapping[str, ServerConfig]) -> "McpConfig":
        """Return the servers together with the servers of an agent's plugin.

        An entry of the file replaces a plugin's server of its name. If both have the same command,
        the plugin's arguments come before the entry's arguments, and the entry's variables override
        the plugin's variables.
        """
        added = {
            name: self._merge(name, server)
            for name, server in servers.items()
            if name not in self.disabled
        }
        return replace(
            self,
            servers={**self.servers, **added},
            plugin_servers={**self.plugin_servers, **dict.fromkeys(servers, agent)},
            replaced=self.replaced | (self.servers.keys() & servers.keys()),
        )

    def _merge(self, name: str, server: ServerConfig) -> ServerConfig:
        own = self.servers.get(name)
        if own is None or own.command != server.command:
            return own or server
        update = {"args": [*server.args, *own.args], "env": server.env | own.env}
        return own.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent that configuration alone makes, of MCP servers and instructions."""

    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...]
    servers: tuple[str, ...]
    fingerprint: str
    """A text that changes with the programs or endpoints of the servers."""
    instructions: str = ""

    def build_card(self) -> agent_card_pb2.AgentCard:
        """Return the agent card, without interfaces and capabilities."""
        skill = agent_card_pb2.AgentSkill(
            id="tools",
            name=self.name,
            description=self.description,
            tags=self.tags,
            examples=self.examples,
        )
        return agent_card_pb2.AgentCard(
            name=self.name,
            description=self.description,
            version="1",
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[skill],
        )


def load_config(path: Path | None = None) -> McpConfig:
    """Load the servers of an `mcpServers` file; without a file, none.

    An entry with `"disabled": true` removes the server of that name that a plugin brings.

    Raises:
        ConfigurationError: the file can't be read, or an entry is invalid.
    """
    if path is None:
        return McpConfig({})
    file = ConfigFile.read(path)
    entries = file.entries
    disabled = {
        name
        for name, entry in entries.items()
        if isinstance(entry, dict) and entry.get("disabled") is True
    }
    servers = {name: _server(name, entries[name], file) for name in entries if name not in disabled}
    return McpConfig(servers, frozenset(disabled))


def build_config_schema() -> dict[str, Any]:
    """Return the JSON schema of an `mcpServers` file. Keys of other MCP clients are allowed."""
    schema = ServerConfig.model_json_schema()
    definitions = schema.pop("$defs", {})
    schema["properties"]["disabled"] = {
        "type": "boolean",
        "description": "Ignore this entry, and the server of its name that a plugin brings.",
    }
    schema["anyOf"] = [
        {"oneOf": [{"required": ["command"]}, {"required": ["url"]}]},
        {"required": ["disabled"], "properties": {"disabled": {"const": True}}},
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "MCP servers of a Trunkline mesh",
        "type": "object",
        "properties": {"mcpServers": {"type": "object", "additionalProperties": schema}},
        "required": ["mcpServers"],
        "$defs": definitions,
    }


def agents_from_config(config: McpConfig) -> list[AgentSpec]:
    """Return an agent for each server without one, so that configured tools are called.

    Raises:
        ConfigurationError: two agents have the same name.
    """
    specs: dict[str, AgentSpec] = {}
    for name, server in config.servers.items():
        overlay = server.trunkline.agent
        if name in config.plugin_servers or overlay is False:
            continue
        spec = _agent(name, server, overlay)
        if spec.name in specs or spec.name in config.plugin_servers.values():
            raise ConfigurationError(
                f"mcpServers.{name}", f"there is another agent {spec.name!r}; set agent.name"
            )
        specs[spec.name] = spec
    return list(specs.values())


def _agent(name: str, server: ServerConfig, overlay: AgentOverlay) -> AgentSpec:
    tools = server.trunkline.tools
    tags = overlay.tags or [tag for tool in tools.values() for tag in tool.tags]
    words = [word for text in (name, *tools) for word in re.findall(r"[a-z0-9]+", text.lower())]
    guessed = [word for word in words if word not in _STOP_WORDS]
    return AgentSpec(
        name=overlay.name or to_agent_name(name),
        description=overlay.description or f"Answers with the tools of the MCP server {name}.",
        tags=tuple(dict.fromkeys(tags or guessed)),
        examples=tuple(overlay.examples),
        servers=(name,),
        fingerprint=server.fingerprint(),
    )


def to_agent_name(text: str) -> str:
    """Convert a text to an agent name: lower-case letters, digits and hyphens. It may be empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _server(name: str, entry: object, file: ConfigFile) -> ServerConfig:
    file.check_keys(name, entry, known=ServerConfig.model_fields)
    try:
        server = ServerConfig.model_validate(entry)
    except ValidationError as error:
        place, problem = first_problem(error)
        raise file.error((name, *place), problem) from error
    overlay = server.trunkline.agent
    if overlay is not False and not (overlay.name or to_agent_name(name)):
        raise file.error((name,), _UNUSABLE_NAME)
    if server.cwd is None:
        return server
    return server.model_copy(update={"cwd": file.path.parent / server.cwd})


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """Settings of the tool adapter. Times are in seconds."""

    connect_timeout_s: float = 60.0
    """Limit from a server's start to its list of tools. Callers wait meanwhile. An entry of the
    file may override it."""
    call_timeout_s: float = 60.0
    """Limit of a call. An entry of the file may override it."""
    restart_delay_s: float = 0.5
    """Pause before the first restart. It doubles with each consecutive failure."""
    restart_delay_max_s: float = 30.0
    """Longest pause. A server that was ready for this long restarts with the shortest pause."""
    probe_s: float = 60.0
    """Interval at which the tools of a remote server are listed again, which detects that it is
    down before a call needs it."""
    grace_s: float = 2.0
    """Time for a server to exit after its stdin closes, and again after SIGTERM."""
    result_limit_bytes: int = 1024 * 1024
    """Larger results are stored with the task and referred to. A call without a task fails
    instead."""
    folder: Path | None = None
    """The folder in which servers without a `cwd` start. None, or missing: the current folder."""
    breaker: BreakerSettings = DEFAULT_SETTINGS
    """Settings of each server's circuit breaker. An open breaker stops calls and starts."""


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand_variables(server: str, text: str) -> str:
    """Replace `${NAME}` and `${NAME:-default}` by environment variables.

    The `mcpServers` file therefore need not hold secrets.

    Raises:
        ToolServerUnavailableError: the environment has no such variable.
    """

    def value(reference: re.Match[str]) -> str:
        name, default = reference.groups()
        own = os.environ.get(name)
        # As in a shell, the default also replaces an empty value.
        if default is not None:
            return own or default
        if own is None:
            problem = f"its entry needs the environment variable {name}, which is not set"
            raise ToolServerUnavailableError(server, problem)
        return own

    return _REFERENCE.sub(value, text)


def expand_all_variables(server: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Apply `expand_variables` to each value of a mapping.

    Raises:
        ToolServerUnavailableError: the environment has no such variable.
    """
    return {name: expand_variables(server, text) for name, text in texts.items()}
