"""Loads settings: a file, over it the environment, over that flags."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trunkline.settings.sections import RemoteAgentSettings
from trunkline.settings.settings import Settings

CONFIG_FILE: Final = "trunkline.toml"
CONFIG_VARIABLE: Final = "TRUNKLINE_CONFIG"


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings of a process.

    They come from `trunkline.toml` in `folder` (the current one) or the file that TRUNKLINE_CONFIG
    names, then from the environment, then from `flags`. The later source wins. A flag that is None
    was not given.

    Raises:
        ConfigurationError: it names the file and key, the variable or the flag that is wrong.
    """
    # It takes a third of a second to load, and most importers of this package load no settings.
    from trunkline.settings.sources import read_settings

    environment = os.environ if environment is None else environment
    named = environment.get(CONFIG_VARIABLE)
    file = Path(named) if named else (folder or Path()) / CONFIG_FILE
    return read_settings(
        flags=flags or {},
        environment=environment,
        file=file if named or file.exists() else None,
    )


def parse_remote(table: object, *, where: str) -> RemoteAgentSettings:
    """Return the settings of a remote agent from a table.

    Raises:
        ConfigurationError: a key or a value is wrong, or the URL is missing.
    """
    from trunkline.settings.sources import read_remote

    return read_remote(table, where=where)
