"""Loads settings from a file, the environment and flags; the later source wins."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from trunkline.settings.sections import RemoteAgentSettings
from trunkline.settings.settings import ENV_PREFIX, Settings

CONFIG_FILE: Final = "trunkline.toml"
CONFIG_VARIABLE: Final = "TRUNKLINE_CONFIG"
_VARIABLES: Final = frozenset(
    f"{ENV_PREFIX}{name}".upper()
    for name in ("agent_timeouts", *(setting.name for setting in fields(Settings)))
)


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings of a process.

    They come from `trunkline.toml` in `folder` (the current one) or the file that TRUNKLINE_CONFIG
    names, then from the environment, then from `flags`. The later source wins. A flag that is None
    is ignored.

    Raises:
        ConfigurationError: it names the file and key, the variable or the flag that is wrong.
    """
    environment = os.environ if environment is None else environment
    configured = environment.get(CONFIG_VARIABLE)
    path = Path(configured) if configured else (folder or Path()) / CONFIG_FILE
    file = path if configured or path.exists() else None
    set_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    if file is None and not set_flags and _VARIABLES.isdisjoint(environment):
        return Settings()
    # pydantic-settings takes half the time of a short command to load.
    from trunkline.settings.sources import read_settings

    return read_settings(flags=set_flags, environment=environment, file=file)


def parse_remote(table: object, *, where: str) -> RemoteAgentSettings:
    """Return the settings of a remote agent from a table.

    Raises:
        ConfigurationError: a key or a value is wrong, or the URL is missing.
    """
    from trunkline.settings.sources import read_remote

    return read_remote(table, where=where)
