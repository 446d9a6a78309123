"""An agent's settings, from its table of `trunkline.toml` and from the environment."""

import os
from collections.abc import Mapping
from dataclasses import is_dataclass

from trunkline.core.settings import ENV_PREFIX, OptionsT, read_options
from trunkline.errors import ConfigurationError


def validate_options_type(agent: str, kind: type) -> None:
    """Check that a type can hold an agent's settings.

    Raises:
        ConfigurationError: it is neither a pydantic model nor a dataclass.
    """
    if not (is_dataclass(kind) or hasattr(kind, "model_fields")):
        problem = "its settings must be a pydantic model or a dataclass"
        raise ConfigurationError(f"agent {agent!r}", problem)


def load_agent_options(
    agent: str,
    kind: type[OptionsT],
    table: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
) -> OptionsT:
    """Return an agent's settings from its table and from variables, which take precedence.

    A variable is TRUNKLINE_AGENT_NAME_FIELD in capitals, with `_` for `-` and `.`.

    Raises:
        ConfigurationError: it names the key or the variable that is wrong, or missing.
    """
    return read_options(
        kind,
        table,
        environment=os.environ if environment is None else environment,
        key=lambda path: f"[agent.{agent}.options] {path}".rstrip(),
        variable=lambda name: (
            f"{ENV_PREFIX}AGENT_{agent}_{name}".upper().replace("-", "_").replace(".", "_")
        ),
    )
