"""What can be set of one agent, and of one model or of all models of a provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
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

    def may_use(self, server: str, tool: str) -> bool:
        """Whether the agent may see and call a tool. What is denied is so whatever is allowed."""

        def is_one(pattern: str) -> bool:
            name = f"{server}/{tool}" if "/" in pattern else tool
            return fnmatchcase(name, pattern)

        is_allowed = not self.allow_tools or any(map(is_one, self.allow_tools))
        return is_allowed and not any(map(is_one, self.deny_tools))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOptions:
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
