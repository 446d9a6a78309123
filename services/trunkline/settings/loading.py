"""Where settings are found: a file, over it the environment, over that flags."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trunkline.errors import ConfigurationError
from trunkline.settings.checking import NAMES, read_remote, read_setting
from trunkline.settings.settings import Remote, Settings

CONFIG_FILE = "trunkline.toml"
CONFIG_VARIABLE = "TRUNKLINE_CONFIG"
PREFIX = "TRUNKLINE_"

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
    found |= _from_environment(environment)
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
    if "agent" in table:
        table["agent_timeouts"] = _timeouts_of(table.pop("agent"), where=f"{path}: agent")
    if "remote" in table:
        table["remotes"] = _remotes_of(table.pop("remote"), where=f"{path}: remote")
    found = {
        name: read_setting(name, value, where=f"{path}: {name}") for name, value in table.items()
    }
    for name, value in found.items():
        if isinstance(value, Path):
            found[name] = path.parent / value
    return found


def _timeouts_of(agents: object, *, where: str) -> dict[str, object]:
    """The timeouts in the `[agent.NAME]` tables of a file."""
    timeouts: dict[str, object] = {}
    if not isinstance(agents, dict):
        raise ConfigurationError(where=where, problem="write [agent.NAME] and under it timeout_s")
    for name, table in agents.items():
        if not isinstance(table, dict) or set(table) != {"timeout_s"}:
            problem = "of an agent only timeout_s can be set"
            raise ConfigurationError(where=f"{where}.{name}", problem=problem)
        timeouts[name] = table["timeout_s"]
    return timeouts


def _remotes_of(tables: object, *, where: str) -> dict[str, Remote]:
    """The `[remote.NAME]` tables of a file."""
    if not isinstance(tables, dict):
        raise ConfigurationError(where=where, problem="write [remote.NAME] and under it url")
    return {name: read_remote(given, where=f"{where}.{name}") for name, given in tables.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    # Other names are left alone: clusters put variables like TRUNKLINE_SERVICE_HOST there.
    found: dict[str, Any] = {}
    for name in NAMES:
        variable = PREFIX + name.upper()
        if text := environment.get(variable):
            found[name] = read_setting(name, text, where=variable)
    return found
