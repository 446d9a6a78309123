"""The settings file `trunkline.toml`, and the part of it that applies in an untrusted folder.

`up` and `serve` take everything from the file of the folder they run in. Every other command takes
only harmless settings from it until the user trusts the folder.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from trunkline.core.settings.addresses import MeshAddress
from trunkline.errors import ConfigurationError

# These settings are harmless: they name no program, agent, model, file or machine, contain no text
# for models, grant no access and delete no data. A new setting has to be added here before an
# untrusted file may set it.
_HARMLESS: Final = frozenset(
    {
        "auth_wait_s", "body_limit_bytes", "breaker_failures", "breaker_open_s",
        "breaker_successes", "cancel_grace_s", "connection_limit", "drain_grace_s",
        "flush_interval_ms", "heartbeat_s", "lease_s", "limits", "log_format", "log_level",
        "patience_s", "ping_s", "prewarm", "push_notifications", "queue_limit",
        "request_timeout_s", "streaming", "strict_versions", "synchronous", "task_limit",
        "tool_idle_s", "trace_age_s", "trace_limit", "tree",
    }
)  # fmt: skip
# Harmless keys of the tables of agents.
_AGENT_TABLES: Final = "agent"
_HARMLESS_OF_AGENTS: Final = frozenset({"allow_tools", "check", "deny_tools", "timeout_s"})
# Harmless if only this machine can be reached there. Questions and API keys go to `http`.
_ADDRESSES: Final = frozenset({"a2a_grpc", "http", "listen", "mesh"})
# Harmless if they are inside the folder. Commands write and delete there.
_PATHS: Final = frozenset({"data_dir"})


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The content of a settings file. Relative paths in it start at its folder."""

    path: Path
    content: bytes
    table: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            ConfigurationError: it can't be read, or is not TOML.
        """
        try:
            content = path.read_bytes()
            return cls(path, content, tomllib.loads(content.decode()))
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise ConfigurationError(where=str(path), problem=problem) from error
        except ValueError as error:
            raise ConfigurationError(where=str(path), problem=f"is not TOML: {error}") from error

    @property
    def folder(self) -> Path:
        """The folder that the file lies in."""
        return self.path.parent

    def reduce_to_harmless(self) -> tuple["SettingsFile", tuple[str, ...]]:
        """Return the file with its harmless settings, and the names of the other settings.

        The name of a key in a table has dots.
        """
        harmless: dict[str, Any] = {}
        others: list[str] = []
        for key, value in self.table.items():
            if key == _AGENT_TABLES:
                harmless[key], names = self._reduce_agents(value)
                others += [f"{key}.{name}" for name in names]
            elif self._is_harmless(key, value, _HARMLESS):
                harmless[key] = value
            else:
                others.append(key)
        return replace(self, table=harmless), tuple(others)

    def _reduce_agents(self, agents: object) -> tuple[object, list[str]]:
        """Reduce the tables of agents by name. A value of another type fails validation."""
        if not isinstance(agents, dict):
            return agents, []
        harmless: dict[str, object] = {}
        others: list[str] = []
        for name, table in agents.items():
            if not isinstance(table, dict):
                harmless[name] = table
                continue
            reduced = {
                key: value
                for key, value in table.items()
                if self._is_harmless(key, value, _HARMLESS_OF_AGENTS)
            }
            harmless[name] = reduced
            others += [f"{name}.{key}" for key in table if key not in reduced]
        return harmless, others

    def _is_harmless(self, key: str, value: object, names: frozenset[str]) -> bool:
        if key in _ADDRESSES:
            return isinstance(value, str) and _is_loopback(value)
        if key in _PATHS:
            return isinstance(value, str) and _is_inside(value, self.folder)
        return key in names


def _is_loopback(address: str) -> bool:
    try:
        return all(each.is_loopback for each in MeshAddress.parse(address).registries)
    except ValueError:
        return False


def _is_inside(path: str, folder: Path) -> bool:
    try:
        return (folder / Path(path).expanduser()).resolve().is_relative_to(folder.resolve())
    # The user's home does not exist, or the links are circular.
    except (OSError, RuntimeError, ValueError):
        return False
