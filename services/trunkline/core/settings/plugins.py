"""Settings of agents and plugins, validated by the types that they declare."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from trunkline.core.settings.sections import PluginTable
from trunkline.core.settings.settings import ENV_PREFIX, Settings
from trunkline.errors import ConfigurationError

OptionsT = TypeVar("OptionsT")


def load_plugin_settings(
    name: str,
    settings_type: type[OptionsT],
    settings: Settings,
    *,
    environment: Mapping[str, str] | None = None,
) -> OptionsT:
    """Return a plugin's settings from its table of the file and from the environment.

    The environment takes precedence. An empty variable counts as not set. A relative path in the
    file starts at the file's folder.

    Raises:
        ConfigurationError: it names the key or the variable that is wrong or missing.
    """
    table = settings.plugins.get(name, PluginTable({}, where=name))
    environment = {
        variable: text
        for variable, text in (os.environ if environment is None else environment).items()
        if text
    }

    def variable(key: str) -> str:
        return f"{ENV_PREFIX}{name}_{key}".upper().replace("-", "_")

    options = read_options(
        settings_type,
        table.values,
        environment=environment,
        key=lambda path: f"{table.where}.{path}",
        variable=variable,
    )
    from_file = table.values.keys() - {key for key in table.values if variable(key) in environment}
    paths = {
        key: table.folder / getattr(options, key) for key in from_file if _is_path(options, key)
    }
    if is_dataclass(options) and not isinstance(options, type):
        return replace(options, **paths)
    resolved: OptionsT = cast("Any", options).model_copy(update=paths)
    return resolved


def _is_path(options: object, key: str) -> bool:
    return isinstance(getattr(options, key, None), Path)


def read_options(
    kind: type[OptionsT],
    table: Mapping[str, object],
    *,
    environment: Mapping[str, str],
    key: Callable[[str], str],
    variable: Callable[[str], str],
) -> OptionsT:
    """Return settings of type `kind` from a table and from the environment, which takes precedence.

    `key` returns the position of a field in the file, and `variable` its environment variable. In
    a variable, a list or a table is JSON. Values are converted as pydantic does.

    Raises:
        ConfigurationError: it names the key or the variable that is wrong, or missing. The value
            isn't repeated, because it may be a secret.
    """
    from pydantic import TypeAdapter, ValidationError

    names = _list_keys(kind)
    for name in table:
        if name not in names:
            problem = f"no such setting; there are: {', '.join(sorted(names)) or 'none'}"
            raise ConfigurationError(key(name), problem)
    values = dict(table)
    from_variables = {name: variable(name) for name in names if variable(name) in environment}
    for name, source in from_variables.items():
        values[name] = _parse_value(environment[source])
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        name = str(wrong["loc"][0]) if wrong["loc"] else ""
        path = ".".join(map(str, wrong["loc"]))
        if wrong["type"] == "missing" and path == name:
            problem = f"is missing; write it there, or set {variable(name)}"
            raise ConfigurationError(key(name), problem) from None
        where = from_variables.get(name) or key(path)
        # Our own validators raise ValueError; pydantic puts a prefix before its text.
        raise ConfigurationError(where, wrong["msg"].removeprefix("Value error, ")) from None


def _list_keys(kind: type[Any]) -> set[str]:
    """Return the keys that a type takes. A pydantic field with an alias is named by the alias."""
    if is_dataclass(kind):
        return {field.name for field in fields(kind) if field.init}
    return {field.alias or name for name, field in kind.model_fields.items()}


def _parse_value(text: str) -> object:
    """Return a variable's value. A list or a table is JSON; other text is converted by pydantic."""
    if text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
