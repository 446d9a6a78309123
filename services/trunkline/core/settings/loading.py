"""Loads settings from a file, the environment and flags; the later source wins."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.core.settings.sections import RemoteAgentSettings
from trunkline.core.settings.settings import ENV_PREFIX, TABLE_VARIABLES, Settings

if TYPE_CHECKING:
    from trunkline.core.settings.settings_file import SettingsFile

CONFIG_FILE: Final = "trunkline.toml"
CONFIG_VARIABLE: Final = "TRUNKLINE_CONFIG"
# TRUNKLINE_AGENT_TIMEOUTS sets fields of `agent_options`: see `trunkline.core.settings.sources`.
_VARIABLES: Final = frozenset(
    f"{ENV_PREFIX}{name}".upper()
    for name in ("agent_timeouts", *(setting.name for setting in fields(Settings)))
).union(TABLE_VARIABLES)


@dataclass(frozen=True, slots=True)
class IgnoredSettings:
    """Settings that are ignored because the user has not trusted the folder of their file."""

    file: Path
    names: tuple[str, ...]
    """Keys of the file. Keys in a table have dots."""
    has_changed: bool
    """True if the user trusted the folder before the file changed."""


ReportIgnored: TypeAlias = Callable[[IgnoredSettings], None]


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    report_ignored: ReportIgnored | None = None,
) -> Settings:
    """Return the settings of a process.

    They come from `trunkline.toml` in `folder` (the current one) or the file that TRUNKLINE_CONFIG
    names, then from the environment, then from `flags`. The later source wins. A flag that is None
    is ignored.

    With `report_ignored`, `trunkline.toml` has to be trusted: only its harmless settings apply if
    the user has not trusted the folder, and the function gets the ignored settings. A file that
    TRUNKLINE_CONFIG names is trusted.

    Raises:
        ConfigurationError: it names the file and key, the variable or the flag that is wrong.
    """
    environment = os.environ if environment is None else environment
    path, has_file = find_settings_file(environment, folder)
    set_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    if not has_file and not set_flags and _VARIABLES.isdisjoint(environment):
        return Settings()
    # pydantic-settings takes half the time of a short command to load.
    from trunkline.core.settings.settings_file import SettingsFile
    from trunkline.core.settings.sources import read_settings

    file = SettingsFile.read(path) if has_file else None
    if file and report_ignored and not environment.get(CONFIG_VARIABLE):
        file, ignored = _require_trust(file)
        # A variable or a flag takes precedence over the file anyway.
        names = [
            name
            for name in ignored.names
            if name not in set_flags and not environment.get(f"{ENV_PREFIX}{name}".upper())
        ]
        if names:
            report_ignored(replace(ignored, names=tuple(names)))
    return read_settings(flags=set_flags, environment=environment, file=file)


def find_settings_file(
    environment: Mapping[str, str], folder: Path | None = None
) -> tuple[Path, bool]:
    """Return the path of the settings file, and whether there has to be one or is one."""
    configured = environment.get(CONFIG_VARIABLE)
    path = Path(configured) if configured else (folder or Path()) / CONFIG_FILE
    return path, bool(configured) or path.exists()


def _require_trust(file: "SettingsFile") -> tuple["SettingsFile", IgnoredSettings]:
    """Return the file without the settings that need trust, and those settings."""
    from trunkline.core.settings.trust import Trust, TrustStore

    harmless, others = file.reduce_to_harmless()
    # The store is not needed for a file that is harmless.
    trust = TrustStore().check(file.folder, file.content) if others else Trust.TRUSTED
    if trust is Trust.TRUSTED:
        return file, IgnoredSettings(file.path, (), has_changed=False)
    return harmless, IgnoredSettings(file.path, others, has_changed=trust is Trust.CHANGED)


def parse_remote(table: object, *, where: str) -> RemoteAgentSettings:
    """Return the settings of a remote agent from a table.

    Raises:
        ConfigurationError: a key or a value is wrong, or the URL is missing.
    """
    from trunkline.core.settings.sources import read_remote

    return read_remote(table, where=where)
