"""Effective settings: the value of each one, and the source that it comes from."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from trunkline.core.json_types import JsonValue
from trunkline.core.settings.addresses import HostPort, MeshAddress
from trunkline.core.settings.loading import find_settings_file
from trunkline.core.settings.sections import PluginTable
from trunkline.core.settings.settings_file import SettingsFile
from trunkline.core.settings.sources import SettingsSource, file_key, matching_depth, read_sources

HIDDEN: Final = "(hidden)"
DEFAULT: Final = "default"
# Keys of tables whose meaning only plugins, agents and providers know.
_SECRET_KEY: Final = re.compile("key|secret|token|password|passwd|credential|auth", re.IGNORECASE)
_URL_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting with its value."""

    name: str
    """The key of the setting in the file. Keys in tables have dots."""
    value: Any
    """A value of JSON. Secrets are `HIDDEN`."""
    source: str
    """The file, the variable or the flag that sets it, or `DEFAULT`."""


def list_effective_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> list[EffectiveSetting]:
    """Return all settings, and the keys that are set in tables by name, with their sources.

    The sources are the same as for `load_settings`, and the file is taken as trusted.

    Raises:
        ConfigurationError: the settings are invalid.
    """
    environment = os.environ if environment is None else environment
    path, has_file = find_settings_file(environment, folder)
    settings, sources = read_sources(
        flags={name: value for name, value in (flags or {}).items() if value is not None},
        environment=environment,
        file=SettingsFile.read(path) if has_file else None,
    )
    values = [(source, source()) for source in sources]
    return [
        EffectiveSetting(file_key(key), value, _find_source(values, key))
        for key, value in _walk((), settings, is_open=False)
        # Tables by name show only their set keys.
        if len(key) <= 2 or _find_source(values, key) != DEFAULT
    ]


def _walk(
    path: tuple[str, ...], value: object, *, is_open: bool
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of each setting. With `is_open`, users choose the keys."""
    if is_dataclass(value) and not isinstance(value, type | HostPort | MeshAddress | PluginTable):
        for setting in fields(value):
            key = (*path, setting.name)
            inner = getattr(value, setting.name)
            if setting.repr:
                yield from _walk(key, inner, is_open=False)
            elif inner:
                yield key, HIDDEN
            else:
                yield key, _to_json(inner)
        return
    table = value.values if isinstance(value, PluginTable) else value
    if isinstance(table, Mapping):
        if not table and len(path) == 1:
            yield path, {}
        for name, inner in table.items():
            has_known_keys = is_dataclass(inner) and not isinstance(inner, PluginTable)
            yield from _walk((*path, str(name)), inner, is_open=not has_known_keys)
        return
    is_secret = is_open and path and _SECRET_KEY.search(path[-1])
    yield path, HIDDEN if is_secret and value else _to_json(value)


def _find_source(
    sources: Sequence[tuple[SettingsSource, Mapping[str, Any]]], path: Sequence[str]
) -> str:
    for source, values in sources:
        tables = _open_plugin_tables(values)
        if matching_depth(tables, path) == len(path):
            # Without the key: the setting's name has it.
            return source.locate(path).removesuffix(f": {file_key(path)}")
    return DEFAULT


def _open_plugin_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    plugins = values.get("plugins")
    if not plugins:
        return dict(values)
    return {**values, "plugins": {name: dict(table.values) for name, table in plugins.items()}}


def _to_json(value: object) -> JsonValue:
    match value:
        case None | bool() | int() | float():
            return value
        case tuple() | list():
            return [_to_json(item) for item in value]
        case Mapping():
            return {str(name): _to_json(item) for name, item in value.items()}
    return _URL_CREDENTIALS.sub("…@", str(value))
