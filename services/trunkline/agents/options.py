"""An agent's own settings: read from its table of `trunkline.toml` and from the environment."""

import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from trunkline.errors import ConfigurationError
from trunkline.settings import ENV_PREFIX


def validate_options_type(agent: str, kind: type) -> None:
    """See that settings of a type can be filled.

    Raises:
        ConfigurationError: it is neither a pydantic model nor a dataclass.
    """
    if not (is_dataclass(kind) or hasattr(kind, "model_fields")):
        problem = "its settings must be a pydantic model or a dataclass"
        raise ConfigurationError(f"agent {agent!r}", problem)


def load_agent_options(
    agent: str,
    kind: type[Any],
    given: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
) -> object:
    """Return an agent's settings: `given` by its table, and over that by variables.

    A variable is TRUNKLINE_AGENT_NAME_FIELD in capitals, with `_` for `-`; a list or a table is
    JSON there. Values are converted to the fields' types as pydantic does.

    Raises:
        ConfigurationError: it names the key or the variable that is wrong, or missing. The value
            isn't repeated: it may be a secret.
    """
    from pydantic import TypeAdapter, ValidationError

    names = _names(kind)
    for key in given:
        if key not in names:
            problem = f"no such setting; there are: {', '.join(sorted(names)) or 'none'}"
            raise ConfigurationError(_key(agent, key), problem)
    environment = os.environ if environment is None else environment
    variables = {name: _variable(agent, name) for name in names}
    found = dict(given)
    said = {name: at for name, at in variables.items() if at in environment}
    for name, variable in said.items():
        found[name] = _value(environment[variable])
    try:
        return TypeAdapter(kind).validate_python(found)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(wrong["loc"][0]) if wrong["loc"] else ""
        path = ".".join(map(str, wrong["loc"]))
        if wrong["type"] == "missing" and path == name:
            problem = f"is missing; write it there, or set {_variable(agent, name)}"
            raise ConfigurationError(_key(agent, name), problem) from None
        where = said.get(name) or _key(agent, path)
        raise ConfigurationError(where, wrong["msg"]) from None


def _names(kind: type[Any]) -> set[str]:
    """The keys that a type takes: of a pydantic model, a field with an alias goes by that."""
    if is_dataclass(kind):
        return {one.name for one in fields(kind) if one.init}
    return {one.alias or name for name, one in kind.model_fields.items()}


def _key(agent: str, path: str) -> str:
    return f"[agent.{agent}.options] {path}".rstrip()


def _variable(agent: str, name: str) -> str:
    return f"{ENV_PREFIX}AGENT_{agent}_{name}".upper().replace("-", "_")


def _value(text: str) -> object:
    """A list or a table is written as JSON; everything else, pydantic makes of the text."""
    if text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
