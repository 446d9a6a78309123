"""Reads settings with pydantic-settings: flags over the environment over the file.

`load_settings` and `parse_remote` import this module when they are called, because
pydantic-settings is slow to load.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final, NoReturn, Protocol, get_args, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    SettingsConfigDict,
)

from trunkline.core.settings.constraints import split_texts
from trunkline.core.settings.sections import PluginTable, RemoteAgentSettings
from trunkline.core.settings.settings import (
    AGENT_PLUGIN_GROUP,
    ENV_PREFIX,
    TABLE_VARIABLES,
    Settings,
)
from trunkline.core.settings.settings_file import SettingsFile
from trunkline.errors import ConfigurationError

# Settings that are `[KEY.NAME]` tables of the file, by that key.
_TABLES: Final = {
    "agent": "agent_options",
    "models": "models",
    "participant": "participants",
    "remote": "remotes",
    "scope": "scopes",
    "supervisor": "supervisors",
}
_TABLE_KEYS: Final = {setting: key for key, setting in _TABLES.items()}
# The table of all settings that begin with its name.
_GROUP: Final = "identity"
# Flags whose names differ from the setting's.
_FLAGS: Final = {
    "a2a_grpc": "--a2a-grpc",
    "data_dir": "--data",
    "mcp_file": "--mcp",
    "agents": "--agent",
    "workflows": "--workflow",
    "default_agent": "--default",
    "allow_webhook": "--allow-webhook",
}
# Lists to which a flag adds, while other flags replace the values of other sources.
_ADDED: Final = frozenset({"agents", "allow_webhook", "workflows"})
# The number of keys that an error lists beside the key that was probably meant.
_LISTED_KEYS: Final = 40
_TYPES: Final[Mapping[str, Any]] = get_type_hints(Settings)
_GROUP_KEYS: Final = frozenset(
    name.removeprefix(f"{_GROUP}_") for name in _TYPES if name.startswith(f"{_GROUP}_")
)
# Settings that the file has no key for.
_NOT_KEYS: Final = frozenset(
    {"agent_options", "participants", "plugins", "remotes", "scopes", "supervisors"}
    | {f"{_GROUP}_{key}" for key in _GROUP_KEYS}
)
_UNKNOWN_KEY: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_NOT_A_TABLE: Final = frozenset({"dataclass_type", "dict_type", "mapping_type"})


class SettingsSource(Protocol):
    """A source of settings."""

    def __call__(self) -> dict[str, Any]:
        """Return the values by setting. Tables are mappings."""
        ...

    def locate(self, path: Sequence[str]) -> str:
        """Return the file and key, the variable or the flag of a setting, or of a key in one."""
        ...


class _Sources(BaseSettings):
    # A list in a variable is text with commas, not JSON: see `constraints.Texts`.
    model_config = SettingsConfigDict(
        extra="forbid", case_sensitive=True, enable_decoding=False, protected_namespaces=()
    )


class _Flags(InitSettingsSource):
    """Values of the command line. Lists whose flag may be repeated add to the other sources."""

    def __init__(
        self,
        model: type[BaseSettings],
        flags: Mapping[str, object],
        others: Sequence[SettingsSource],
    ) -> None:
        values = dict(flags)
        for name in _ADDED & flags.keys():
            tables = (source() for source in others)
            set_before = next((table[name] for table in tables if name in table), ())
            before = split_texts(set_before)
            added = split_texts(flags[name])
            # A value of another type fails the validation of its source.
            if isinstance(before, list | tuple) and isinstance(added, list | tuple):
                values[name] = list(dict.fromkeys([*before, *added]))
        super().__init__(model, values)

    def locate(self, path: Sequence[str]) -> str:
        return _FLAGS.get(path[0], f"--{path[0]}")


class _Environment(EnvSettingsSource):
    """Variables TRUNKLINE_NAME.

    Clusters set other variables with this prefix, so unknown names are ignored.
    """

    def __init__(self, model: type[BaseSettings], environment: Mapping[str, str]) -> None:
        super().__init__(model, case_sensitive=False, env_prefix=ENV_PREFIX)
        # An empty variable counts as not set.
        self.env_vars = {
            name.lower(): text for name, text in environment.items() if text and name.isupper()
        }

    def __call__(self) -> dict[str, Any]:
        """Return the values by setting.

        TRUNKLINE_AGENT_TIMEOUTS is `NAME=SECONDS,…`, and TRUNKLINE_SCOPES is JSON.
        """
        values = super().__call__()
        for variable, (table, key) in TABLE_VARIABLES.items():
            if text := self.env_vars.get(variable.lower()):
                values.setdefault(table, {})[key] = text
        if scopes := values.get("scopes"):
            values["scopes"] = _parse_json(scopes)
        timeouts = self.env_vars.get(f"{ENV_PREFIX}AGENT_TIMEOUTS".lower())
        if timeouts:
            pairs = [piece.partition("=") for piece in timeouts.split(",") if piece.strip()]
            values["agent_options"] = {
                name.strip(): {"timeout_s": seconds.strip()} for name, _, seconds in pairs
            }
        return values

    def locate(self, path: Sequence[str]) -> str:
        if path[0] == "agent_options" and len(path) > 1:
            return f"{ENV_PREFIX}AGENT_TIMEOUTS: {path[1]}"
        if (variable := f"{ENV_PREFIX}{'_'.join(path)}".upper()) in TABLE_VARIABLES:
            return variable
        return f"{ENV_PREFIX}{path[0].upper()}"


class _File(InitSettingsSource):
    """The TOML file. Relative paths in it start at its folder."""

    def __init__(self, model: type[BaseSettings], file: SettingsFile) -> None:
        super().__init__(model, {})
        self._file = file

    def __call__(self) -> dict[str, Any]:
        """Return the values by setting."""
        values: dict[str, Any] = {}
        plugins: dict[str, PluginTable] = {}
        for key, value in self._file.table.items():
            if key in _TABLES:
                values[_TABLES[key]] = self._resolve_tables(_TYPES[_TABLES[key]], value)
            elif isinstance(value, dict) and is_dataclass(_TYPES.get(key)):
                values[key] = self._resolve_paths(_TYPES[key], value)
            elif key == _GROUP:
                values |= self._read_group(value)
            elif key in _TYPES and key not in _NOT_KEYS:
                values[key] = self._resolve_path(value) if _is_path(_TYPES[key]) else value
            elif key in _plugin_names():
                plugins[key] = self._plugin_table(key, value)
            else:
                raise _unknown_key(f"{self._file.path}: {key}", _list_keys())
        return values | ({"plugins": plugins} if plugins else {})

    def locate(self, path: Sequence[str]) -> str:
        return f"{self._file.path}: {file_key(path)}"

    def _read_group(self, table: object) -> dict[str, object]:
        where = self.locate([_GROUP])
        keys = ", ".join(sorted(_GROUP_KEYS))
        if not isinstance(table, dict):
            raise ConfigurationError(where=where, problem=f"expected a table; its keys are: {keys}")
        for key in table.keys() - _GROUP_KEYS:
            raise _unknown_key(f"{where}.{key}", sorted(_GROUP_KEYS))
        return {
            f"{_GROUP}_{key}": self._resolve_path(value)
            if _is_path(_TYPES[f"{_GROUP}_{key}"])
            else value
            for key, value in table.items()
        }

    def _resolve_path(self, value: object) -> object:
        if not isinstance(value, str) or not value:
            return value
        return self._file.folder / Path(value).expanduser()

    def _resolve_paths(self, table: type, values: Mapping[str, object]) -> dict[str, object]:
        types = get_type_hints(table)
        return {
            name: self._resolve_path(value) if _is_path(types.get(name)) else value
            for name, value in values.items()
        }

    def _resolve_tables(self, tables: object, values: object) -> object:
        """Resolve the paths in tables of one type; the value of another type fails validation."""
        if not isinstance(values, dict):
            return values
        table = get_args(tables)[-1]
        return {
            name: self._resolve_paths(table, value) if isinstance(value, dict) else value
            for name, value in values.items()
        }

    def _plugin_table(self, name: str, value: object) -> PluginTable:
        where = self.locate([name])
        if not isinstance(value, dict):
            raise ConfigurationError(where=where, problem="expected a table")
        return PluginTable(value, where=where, folder=self._file.folder)


def file_key(path: Sequence[str]) -> str:
    """Return the key of a setting, or of a key in one, as the file has it: with dots."""
    if path[0] == "plugins":
        return ".".join(path[1:])
    key = _TABLE_KEYS.get(path[0], path[0])
    if key.startswith(f"{_GROUP}_"):
        key = key.replace("_", ".", 1)
    return ".".join([key, *path[1:]])


def read_settings(
    *, flags: Mapping[str, object], environment: Mapping[str, str], file: SettingsFile | None
) -> Settings:
    """Return the settings that flags, environment and file hold, in this order of precedence.

    Raises:
        ConfigurationError: it names the file and key, the variable or the flag that is wrong.
    """
    return read_sources(flags=flags, environment=environment, file=file)[0]


def read_sources(
    *, flags: Mapping[str, object], environment: Mapping[str, str], file: SettingsFile | None
) -> tuple[Settings, Sequence[SettingsSource]]:
    """Return the settings as `read_settings` does, and their sources in order of precedence.

    Raises:
        ConfigurationError: as `read_settings`.
    """
    model = _make_model()
    others: list[_Environment | _File] = [_Environment(model, environment)]
    if file is not None:
        others.append(_File(model, file))
    sources: list[_Flags | _Environment | _File] = [_Flags(model, flags, others), *others]
    try:
        loaded = model(_build_sources=(tuple(sources), {}))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        path = [str(key) for key in problem["loc"]]
        # The first source with the longest match: of a missing key, a source has only the table.
        source = max(sources, key=lambda candidate: matching_depth(candidate(), path))
        _raise(problem, source.locate(path), path)
    values = {name: getattr(loaded, name) for name in loaded.model_fields_set}
    return Settings(**values), sources


def read_remote(table: object, *, where: str) -> RemoteAgentSettings:
    """Return the settings of a remote agent from a table.

    Raises:
        ConfigurationError: a key or a value is wrong, or the URL is missing.
    """
    try:
        return TypeAdapter(RemoteAgentSettings).validate_python(table)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        path = [str(key) for key in problem["loc"]]
        _raise(problem, ".".join([where, *path]), ["remotes", where, *path])


@cache
def _make_model() -> type[BaseSettings]:
    """Return the model that validates settings. To make it takes 15 ms of processor time."""
    # `Settings` itself is a dataclass: importing it is cheap, and making one reads nothing.
    return create_model("LoadedSettings", __base__=_Sources, **field_definitions())


def field_definitions() -> dict[str, Any]:
    """Return the fields of `Settings` as `create_model` takes them."""
    annotations = get_type_hints(Settings, include_extras=True)
    definitions: dict[str, Any] = {}
    for setting in fields(Settings):
        default: Any = setting.default
        if default is MISSING:
            factory: Any = setting.default_factory
            default = Field(default_factory=factory)
        definitions[setting.name] = (annotations[setting.name], default)
    return definitions


def _raise(error: ErrorDetails, where: str, path: Sequence[str]) -> NoReturn:
    """Raise the ConfigurationError for an error of pydantic's.

    pydantic's texts do not repeat the value, which may be a secret.
    """
    kind = error["type"]
    if kind in _UNKNOWN_KEY:
        raise _unknown_key(where, _list_keys(path[:-1]))
    if kind == "missing":
        raise ConfigurationError(where=where.rpartition(".")[0], problem=f"write {path[-1]} there")
    if kind in _NOT_A_TABLE:
        raise ConfigurationError(where=where, problem=_describe_table(path))
    if kind == "tuple_type":
        raise ConfigurationError(where=where, problem="expected a list of texts")
    # Our own checks raise ValueError; pydantic puts a prefix before its text.
    raise ConfigurationError(where=where, problem=error["msg"].removeprefix("Value error, "))


def _unknown_key(where: str, keys: Sequence[str]) -> ConfigurationError:
    similar = difflib.get_close_matches(where.split()[-1].rpartition(".")[2], keys, n=1)
    advice = [f"did you mean {key}?" for key in similar]
    # The list of all settings is longer than a screen.
    if len(keys) <= _LISTED_KEYS:
        advice.insert(0, f"there are: {', '.join(keys)}")
    else:
        advice.append("`trunkline config schema` prints all")
    problem = "; ".join(["no such setting", *advice]).replace("?;", "?")
    return ConfigurationError(where=where, problem=problem)


def _list_keys(path: Sequence[str] = ()) -> list[str]:
    """Return the keys that the file may have at the top, or in the table at `path`."""
    if path:
        table = _find_table(path)
        return sorted(field.name for field in fields(table)) if is_dataclass(table) else []
    return sorted((_TYPES.keys() - _NOT_KEYS) | _TABLES.keys() | {_GROUP})


def _describe_table(path: Sequence[str]) -> str:
    """Return the problem of a value that is not a table, at a path where there has to be one."""
    name = _TABLE_KEYS.get(path[0], path[0])
    keys = _list_keys(path)
    if not keys:
        keys, name = _list_keys([*path, ""]), f"{name}.NAME"
    if not keys:
        return "expected a table"
    table = (
        f"write [{name}] as a table into trunkline.toml" if len(path) == 1 else "expected a table"
    )
    return f"{table}; its keys are: {', '.join(keys)}"


def _find_table(path: Sequence[str]) -> Any:  # noqa: ANN401  types have no common type
    """Return the type of the value at a path: a table of the file, or a table of tables."""
    type_: Any = Settings
    for key in path:
        if is_dataclass(type_):
            type_ = get_type_hints(type_).get(key)
        else:
            arguments = get_args(type_)
            type_ = arguments[-1] if arguments else None
        if NoneType in get_args(type_):
            # An optional table.
            type_ = get_args(type_)[0]
    return type_


def matching_depth(values: object, path: Sequence[str]) -> int:
    """Return the number of leading keys of a path that a source's values have."""
    for number, key in enumerate(path):
        if not isinstance(values, dict) or key not in values:
            return number
        values = values[key]
    return len(path)


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    # If the text is not JSON, pydantic reports that it is not a table.
    except ValueError:
        return text


def _is_path(kind: object) -> bool:
    return Path in (kind, *get_args(kind))


def _plugin_names() -> frozenset[str]:
    # The metadata takes a tenth of a second to load, and few files have a plugin's table.
    from importlib.metadata import entry_points

    return frozenset(point.name for point in entry_points(group=AGENT_PLUGIN_GROUP))
