"""What can be set of one agent, and of one model or of all models of a provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """Of one agent: an `[agent.NAME]` table of `trunkline.toml`."""

    timeout_s: float | None = None
    """A task of it fails after so many seconds if its caller gave no deadline, or a later one."""
    model: str = ""
    """What it reasons with, as `provider:name`; empty: what the mesh reasons with."""
    fallbacks: tuple[str, ...] = ()
    """Models that are asked in turn when that one can't answer; none: those of the mesh."""
    check: bool | None = None
    """Whether a model judges its answers before they are final; None: if it has one that can."""
    allow_tools: tuple[str, ...] = ()
    """Only these tools of its servers, each SERVER/TOOL or TOOL, where * stands for anything."""
    deny_tools: tuple[str, ...] = ()
    """Not these tools; written alike."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Settings of its own, checked by itself: its table `[agent.NAME.options]`."""

    def allows_tool(self, server: str, tool: str) -> bool:
        """Whether the agent may see and call a tool. What is denied is so whatever is allowed."""

        def is_one(pattern: str) -> bool:
            name = f"{server}/{tool}" if "/" in pattern else tool
            return fnmatchcase(name, pattern)

        is_allowed = not self.allow_tools or any(map(is_one, self.allow_tools))
        return is_allowed and not any(map(is_one, self.deny_tools))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """Of one model, or of all of a provider: a `[models."openai:NAME"]` or `[models.openai]` table.

    What the table of a model leaves out, that of its provider says.
    """

    base_url: str | None = None
    """Where its provider's interface is served; None: where the provider itself does."""
    api_key_env: str | None = None
    """The variable that holds the key; None: the provider's usual one. Empty: there is no key."""
    timeout_s: float | None = None
    """How long one reply may take in all; None: five minutes."""
    first_token_s: float | None = None
    """How long a model may say nothing, before a reply and within it; None: a minute."""
    max_tokens: int | None = None
    """Longest reply; None: 4096."""
    turn_tokens: int | None = None
    """Tokens, read and written, that one turn may take; None: 200 000."""
    temperature: float | None = None
    """How freely it answers; None: what the provider does by itself."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further arguments of the provider's LangChain class, as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteEndpointSettings:
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
class RemoteAgentSettings(RemoteEndpointSettings):
    """One that is put on the mesh: a `[remote.NAME]` table of `trunkline.toml`."""

    token_env: str = ""
    """The variable that holds its bearer token."""
    api_key_env: str = ""
    """The variable that holds its API key."""
    api_key_header: str = "X-API-Key"
    """The header that the key goes in."""


@dataclass(frozen=True, slots=True)
class PluginTable:
    """The table `[NAME]` of an installed agent plugin. The plugin's own type validates it."""

    values: Mapping[str, object]
    where: str = ""
    """The file and the table's name, for errors."""
    folder: Path = Path()
    """Where relative paths in it start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorSettings:
    """Of one supervisor: a `[supervisor.NAME]` table of `trunkline.toml`, which also makes it.

    The one that is there anyway is named `supervisor`.
    """

    agents: tuple[str, ...] = ()
    """Whom it may ask, other supervisors too; none: every agent that says what it is for."""
    description: str = ""
    """What it is for. Other supervisors ask it if this or `tags` is set."""
    tags: tuple[str, ...] = ()
    """Words by which other supervisors find it in a request."""
    examples: tuple[str, ...] = ()
    """Requests that it can answer."""
    default_agent: str = ""
    """Who gets what fits nobody clearly; empty: the user is asked."""
    model: str = ""
    """What it plans with; empty: `planner_model` of the mesh."""
