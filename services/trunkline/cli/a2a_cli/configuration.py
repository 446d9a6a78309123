"""The configuration of one invocation: the environment, `.env` files and their precedence."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.options import (
    PREFIX,
    SECRETS,
    OptionNames,
    StandardOptions,
    list_options,
)

FOLDER: Final = Path(".config/a2a-cli")
"""The folder of the configuration, below the user's home."""
_FILE: Final = ".env"
_BUILT_IN: Final = "built-in default"

Variables: TypeAlias = Mapping[str, str]


class ConfiguredValue(NamedTuple):
    """The text of an option's value, and its source."""

    text: str
    source: str


class ConfigurationSources:
    """The sources below the flags: the environment and the `.env` files."""

    def __init__(self, environment: Variables, folder: Path, explicit: Path | None = None) -> None:
        """Read the files. `explicit` replaces the local file. CommandError: it can't be read."""
        self.home = Path(environment.get("HOME") or Path.home())
        self.warnings: list[str] = []
        """For the user, about the files."""
        self._sources: list[tuple[str, Variables]] = [("", environment)]
        local = explicit or _find_local_file(folder, self.home)
        if explicit is not None and not explicit.is_file():
            raise usage(f"--config: there is no file {explicit}")
        for file in (local, self.home / FOLDER / _FILE):
            if file is not None and file.is_file():
                variables = read_env_file(file)
                self._sources.append((str(file), variables))
                self._check_mode(file, variables)

    def _check_mode(self, file: Path, variables: Variables) -> None:
        """Warn of a secret in a file that others can read."""
        names = [entry.variable for entry in list_options() if entry.field in SECRETS]
        secret = next((name for name in names if variables.get(name)), None)
        if secret and file.stat().st_mode & 0o077:
            self.warnings.append(
                f"SECURITY WARNING: others can read {secret} in {file}; run `chmod 600 {file}`"
            )

    def find(self, option: OptionNames) -> ConfiguredValue | None:
        """Return an option's value and source, or None if no source has it."""
        for file, variables in self._sources:
            if text := variables.get(option.variable):
                return ConfiguredValue(text, file or option.variable)
        return None

    def defaults(self) -> dict[str, Any]:
        """Return the values of options that are configured, as the parser takes them."""
        found = {}
        for option in list_options():
            if (value := self.find(option)) is not None:
                found[option.field] = (
                    [entry.strip() for entry in value.text.split(",") if entry.strip()]
                    if option.is_list
                    else value.text
                )
        return found


def _find_local_file(folder: Path, home: Path) -> Path | None:
    """Return the nearest `.env` of the folder and those above it."""
    for parent in (folder, *folder.parents):
        file = parent / _FILE
        if file.is_file() and file != home / FOLDER / _FILE:
            return file
    return None


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of our prefix in a file of lines KEY=VALUE.

    Quotes around a value are removed. Nothing is expanded.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{path} can't be read: {error}") from None
    variables = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or not name.strip().startswith(PREFIX):
            continue
        value = value.strip()
        if value[:1] in ("'", '"') and value[1:].endswith(value[0]):
            value = value[1:-1]
        else:
            value = value.split(" #")[0].rstrip()
        variables[name.strip()] = value
    return variables


@dataclass(frozen=True, slots=True)
class SettingReport:
    """An option as `config show` prints it, without a secret."""

    name: str
    value: object
    source: str
    text: str
    """The value as a user would write it."""


def describe_settings(
    options: StandardOptions, sources: ConfigurationSources, given: frozenset[str]
) -> list[SettingReport]:
    """Return the value and the source of each option.

    `given` are the options on the command line.
    """
    reports = []
    for option in list_options():
        if option.field in ("config_file", "version"):
            continue
        value = getattr(options, option.field)
        configured = sources.find(option)
        if option.field in given:
            text, source = _to_text(value), f"--{option.name}"
        elif configured is not None:
            text, source = configured
        else:
            text, source = option.default_text, _BUILT_IN
            value = value or option.default_text or value
        if option.field in SECRETS and value:
            value = text = "[redacted]"
        if option.field == "svc_param":
            value = [f"{param.partition(':')[0]}:[redacted]" for param in value or ()]
            text = ", ".join(value)
        reports.append(SettingReport(option.name, value, source, text))
    return reports


def _to_text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}s"
        case list():
            return ", ".join(value)
    return str(value)
