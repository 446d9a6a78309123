"""Where settings are found: a file, over it the environment, over that flags."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trunkline.errors import ConfigurationError
from trunkline.settings.checking import NAMES, read_setting
from trunkline.settings.sections import AgentSettings, PluginTable
from trunkline.settings.settings import Settings
from trunkline.settings.tables import read_entry, read_tables
from trunkline.settings.values import read_numbers

CONFIG_FILE = "trunkline.toml"
CONFIG_VARIABLE = "TRUNKLINE_CONFIG"
ENV_PREFIX = "TRUNKLINE_"
AGENT_PLUGIN_GROUP = "trunkline.agents"
"""The entry-point group of packages that bring an agent."""

# Flags that aren't called as the setting is.
_FLAGS = {
    "a2a_grpc": "--a2a-grpc",
    "data_dir": "--data",
    "mcp_file": "--mcp",
    "agents": "--agent",
    "default_agent": "--default",
    "allow_webhook": "--allow-webhook",
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
    found |= _from_environment(environment, found)
    for name, value in (flags or {}).items():
        if value is not None:
            found[name] = read_setting(name, value, where=_FLAGS.get(name, f"--{name}"))
    return Settings(**found)


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
    found = read_tables(table, where=f"{path}: ")
    plugins = _pop_plugin_tables(table, path)
    for name, value in table.items():
        found[name] = read_setting(name, value, where=f"{path}: {name}")
    # A relative path in the file starts at the file's folder.
    placed = {
        name: path.parent / value if isinstance(value, Path) else value
        for name, value in found.items()
    }
    return placed | ({"plugins": plugins} if plugins else {})


def _pop_plugin_tables(table: dict[str, Any], path: Path) -> dict[str, PluginTable]:
    """Take the tables of installed agent plugins out of what a file holds."""
    unknown = table.keys() - set(NAMES)
    if not unknown:
        return {}
    # It takes a tenth of a second to load, and most files have no such table.
    from importlib.metadata import entry_points

    plugins = {}
    for name in unknown & {point.name for point in entry_points(group=AGENT_PLUGIN_GROUP)}:
        values, where = table.pop(name), f"{path}: {name}"
        if not isinstance(values, dict):
            raise ConfigurationError(where=where, problem="expected a table")
        plugins[name] = PluginTable(values, where=where, folder=path.parent)
    return plugins


def _from_environment(environment: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, Any]:
    # Other names are left alone: clusters put variables like TRUNKLINE_SERVICE_HOST there.
    said: dict[str, Any] = {}
    for name in NAMES:
        variable = ENV_PREFIX + name.upper()
        if text := environment.get(variable):
            said[name] = read_setting(name, text, where=variable)
    variable = ENV_PREFIX + "AGENT_TIMEOUTS"
    if text := environment.get(variable):
        said["agent_options"] = _with_timeouts(found.get("agent_options", {}), text, variable)
    return said


def _with_timeouts(
    agents: Mapping[str, AgentSettings], text: str, variable: str
) -> dict[str, AgentSettings]:
    try:
        timeouts = read_numbers(text)
    except ValueError as error:
        raise ConfigurationError(where=variable, problem=str(error)) from error
    result = dict(agents)
    for name, seconds in timeouts.items():
        timeout_s = read_entry(AgentSettings, "timeout_s", seconds, where=f"{variable}: {name}")
        result[name] = replace(result.get(name, AgentSettings()), timeout_s=timeout_s)
    return result
