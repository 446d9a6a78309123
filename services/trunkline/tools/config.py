"""Reads the `mcpServers` file: which MCP servers are started, and what we add to their tools."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trunkline.client.breaker import DEFAULT_SETTINGS, BreakerSettings
from trunkline.errors import ConfigurationError, ToolServerUnavailableError
from trunkline.v1 import agent_card_pb2

# Words of tool names that say nothing about what a tool is for.
_EMPTY_WORDS = {"a", "all", "and", "by", "do", "for", "from", "get", "in", "list", "of", "run"}
_EMPTY_WORDS |= {"server", "set", "the", "to", "tool", "with"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except RecursionError:
        raise _not_a_pattern("too deeply nested") from None
    except (re.error, OverflowError) as error:
        raise _not_a_pattern(str(error)) from error
    return pattern


def _not_a_pattern(problem: str) -> PydanticCustomError:
    return PydanticCustomError(
        "pattern", "not a regular expression: {problem}", {"problem": problem}
    )


_Pattern: TypeAlias = Annotated[str, Field(max_length=4000), AfterValidator(_check_pattern)]


class _ArgumentRule(_Strict):
    """How an argument is made of a match, where a template or a literal does not say enough."""

    source: Annotated[str | None, Field(alias="from")] = None
    map: dict[str, Any] = {}
    type: Literal["string", "integer", "number", "boolean"] = "string"
    default: Any = None
    join: str = ", "
    """What stands between earlier answers where `{answers}` does."""
    only: _Pattern = ""
    """Which earlier answers count."""
    least: Annotated[int, Field(ge=1)] = 1
    """How many there have to be."""

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
    """Refuse what would not be filled; of a list, each element is an argument's value."""
    if isinstance(rule, list):
        for number, one in enumerate(rule):
            _check_argument(f"{where}.{number}", one)
    if isinstance(rule, dict):
        try:
            _ArgumentRule.model_validate(rule)
        except ValidationError as error:
            place, problem = _first_problem(error)
            said = {"place": ".".join((where, *place)), "problem": problem}
            raise PydanticCustomError("argument", "{place}: {problem}", said) from error


class MatchRule(_Strict):
    """Questions that a tool answers, and the call they become: a `trunkline/match` entry."""

    pattern: _Pattern
    arguments: Annotated[dict[str, Any], AfterValidator(_check_arguments)] = {}
    answer: str = ""


class ToolOverlay(_Strict):
    """What the configuration adds to the declaration of one tool."""

    match: list[MatchRule] = []
    """Comes before what the tool itself declares as `trunkline/match`."""
    tags: list[str] = []
    approval: bool | None = None
    """Whether a person has to approve each call; None: as the server's `approval` says."""

    def dump_match(self) -> list[dict[str, Any]]:
        """Return `match` as a tool would declare it."""
        return [rule.model_dump(exclude_unset=True) for rule in self.match]


class AgentOverlay(_Strict):
    """How the agent of a server presents itself."""

    name: str = ""
    description: str = ""
    tags: list[str] = []
    examples: list[str] = []


class ServerOverlay(_Strict):
    """The `trunkline` object of an entry: ours, ignored by other MCP clients."""

    agent: AgentOverlay | Literal[False] = AgentOverlay()
    tools: dict[str, ToolOverlay] = {}
    approval: Literal["always", "never", "declared"] = "declared"
    """Which calls a person has to approve. "declared": those of tools whose annotations carry a
    hint and don't say that they only read; a tool without any hint is called as it is."""
    connect_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """How long it may take from its start to its list of tools; more for one that is downloaded."""
    call_timeout_s: Annotated[float, Field(gt=0)] | None = None
    idle_s: Annotated[float, Field(gt=0)] | None = None
    """Without calls for so long, the server's process ends; the next call starts it again, which
    takes about a second. Only for servers that remember nothing between calls."""
    ca_file: Path | None = None
    """Authorities that a server elsewhere may have its certificate from, in place of the system's.
    """


class ServerConfig(BaseModel):
    """One entry of `mcpServers`: a command to start, or the URL of a server elsewhere.

    Keys of other MCP clients are ignored.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: str = ""
    args: list[str] = []
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    """`${NAME}` stands for a variable of ours; so it does in `url` and `headers`."""
    cwd: Path | None = None
    url: Annotated[str, Field(repr=False)] = ""
    """Of its streamable HTTP endpoint."""
    headers: Annotated[dict[str, str], Field(repr=False)] = {}
    """Of each request to it."""
    type: str = ""
    trunkline: ServerOverlay = ServerOverlay()

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise PydanticCustomError("server", 'give either "command" or "url"')
        if self.type == "sse":
            raise PydanticCustomError(
                "type", "HTTP with SSE is a transport of 2024; give the URL of its streamable HTTP"
            )
        return self


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The MCP servers of a mesh, by name."""

    servers: Mapping[str, ServerConfig]
    disabled: frozenset[str] = frozenset()
    """Names that the file takes away, also from plugins."""
    plugin_servers: Mapping[str, str] = field(default_factory=dict)
    """By server, the agent of the plugin that brings it. No other agent is made for the server,
    also if an entry of the file replaces it."""

    @property
    def configured(self) -> frozenset[str]:
        """Names of the file's entries."""
        return self.disabled | self.servers.keys()

    def add_plugin_servers(self, agent: str, servers: Mapping[str, ServerConfig]) -> "McpConfig":
        """Return the servers with those that the plugin of an agent brings.

        An entry of the file replaces a plugin's server of its name. If both have one command, the
        plugin's arguments come before the entry's, and the entry's variables win.
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
        )

    def _merge(self, name: str, server: ServerConfig) -> ServerConfig:
        own = self.servers.get(name)
        if own is None or own.command != server.command:
            return own or server
        update = {"args": [*server.args, *own.args], "env": server.env | own.env}
        return own.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent that exists because its MCP server is configured."""

    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...]
    servers: tuple[str, ...]

    def build_card(self) -> agent_card_pb2.AgentCard:
        """Return the card, without interfaces and capabilities."""
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
    """Return the servers of an `mcpServers` file; without a file, none.

    With `"disabled": true`, an entry takes the plugin's server of its name away.

    Raises:
        ConfigurationError: the file can't be read, or is not what it should be.
    """
    if path is None:
        return McpConfig({})
    entries = _read(path)
    disabled = {
        name
        for name, entry in entries.items()
        if isinstance(entry, dict) and entry.get("disabled") is True
    }
    servers = {name: _server(name, entries[name], path) for name in entries if name not in disabled}
    return McpConfig(servers, frozenset(disabled))


def agents_from_config(config: McpConfig) -> list[AgentSpec]:
    """Return an agent for each server that has none: a tool added by configuration gets called.

    Raises:
        ConfigurationError: two agents would have one name.
    """
    specs: dict[str, AgentSpec] = {}
    for name, server in config.servers.items():
        overlay = server.trunkline.agent
        if name in config.plugin_servers or overlay is False:
            continue
        spec = _agent(name, server, overlay)
        if spec.name in specs or spec.name in config.plugin_servers.values():
            raise ConfigurationError(
                f"mcpServers.{name}", f"an agent {spec.name!r} is there already; set agent.name"
            )
        specs[spec.name] = spec
    return list(specs.values())


def _agent(name: str, server: ServerConfig, overlay: AgentOverlay) -> AgentSpec:
    tools = server.trunkline.tools
    said = overlay.tags or [tag for tool in tools.values() for tag in tool.tags]
    words = [word for text in (name, *tools) for word in re.findall(r"[a-z0-9]+", text.lower())]
    guessed = [word for word in words if word not in _EMPTY_WORDS]
    return AgentSpec(
        name=_agent_name(overlay.name or name),
        description=overlay.description or f"Answers with the tools of the MCP server {name}.",
        tags=tuple(dict.fromkeys(said or guessed)),
        examples=tuple(overlay.examples),
        servers=(name,),
    )


def _agent_name(text: str) -> str:
    """Names on the mesh are lower-case letters, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name:
        raise ConfigurationError(f"mcpServers.{text}", "no agent can be named so; set agent.name")
    return name


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(str(path), f"can't be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigurationError(str(path), f"not JSON: {error.msg} at {place}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(str(path), "not JSON in UTF-8") from error
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(str(path), 'it must be an object with an object "mcpServers"')
    return servers


def _server(name: str, entry: object, path: Path) -> ServerConfig:
    try:
        return ServerConfig.model_validate(entry)
    except ValidationError as error:
        place, problem = _first_problem(error)
        where = ".".join(("mcpServers", name, *place))
        raise ConfigurationError(f"{path}: {where}", problem) from error


def _first_problem(error: ValidationError) -> tuple[list[str], str]:
    """Return where the first thing wrong is, and what it is."""
    first = error.errors(include_url=False, include_input=False)[0]
    return [str(step) for step in first["loc"]], first["msg"]


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """How servers are run. Times are in seconds."""

    connect_timeout_s: float = 60.0
    """How long a server may take from its start to its list of tools; callers wait for it. An
    entry of the file may say otherwise for its server."""
    call_timeout_s: float = 60.0
    """How long a call may take; an entry of the file may say otherwise for its server."""
    restart_delay_s: float = 0.5
    """Pause before the first restart; it doubles with every failure in a row."""
    restart_delay_max_s: float = 30.0
    """Longest pause; a server that was ready for so long starts over with the shortest."""
    probe_s: float = 60.0
    """How often a server elsewhere is asked for its tools anew: nothing else tells that it is gone
    before it is needed."""
    grace_s: float = 2.0
    """How long a server may take to exit before it is told, and then made to."""
    result_limit_bytes: int = 1024 * 1024
    """What is larger is kept with the task, and referred to; for whoever calls without a task it
    is a failure that says so."""
    breaker: BreakerSettings = DEFAULT_SETTINGS
    """When a server that keeps failing is left alone, neither called nor started."""


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand_variables(server: str, text: str) -> str:
    """Return a text with `${NAME}` and `${NAME:-otherwise}` filled in.

    Raises:
        ToolServerUnavailableError: the environment has no such variable.
    """

    def value(reference: re.Match[str]) -> str:
        name, otherwise = reference.groups()
        found = os.environ.get(name)
        # As in a shell, what `:-` gives stands in for an empty value too.
        if otherwise is not None:
            return found or otherwise
        if found is None:
            problem = f"its entry needs the environment variable {name}, which is not set"
            raise ToolServerUnavailableError(server, problem)
        return found

    return _REFERENCE.sub(value, text)


def expand_all_variables(server: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name, each filled in.

    Raises:
        ToolServerUnavailableError: as `expand`.
    """
    return {name: expand_variables(server, text) for name, text in texts.items()}
