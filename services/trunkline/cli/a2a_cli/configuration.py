"""The configuration of one invocation: flags, environment, `.env` files, defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.options import BY_KEY, OPTIONS, PREFIX, OptionSpec

FOLDER: Final = Path(".config/a2a-cli")
"""The folder of the configuration, below the user's home."""
_FILE: Final = ".env"
_SECRETS: Final = tuple(option.variable for option in OPTIONS if option.is_secret)

Variables: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The value of an option and its source."""

    value: Any
    source: str
    text: str = ""
    """As it was written; empty for a built-in default."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The effective values of all options. Nothing in it changes."""

    values: Mapping[str, ConfigValue] = field(repr=False)

    def get(self, key: str) -> Any:  # noqa: ANN401  the option's type
        """Return an option's value; None if it has none."""
        return self.values[key].value

    def text(self, key: str) -> str:
        """Return the value of a text option; empty if it has none."""
        return self.values[key].value or ""

    def path(self, key: str) -> Path | None:
        """Return the value of a file option."""
        return Path(text).expanduser() if (text := self.text(key)) else None

    @property
    def is_json(self) -> bool:
        """The output is JSON."""
        return bool(self.get("output") == "json")

    @property
    def secrets(self) -> list[str]:
        """The values that no output may show."""
        shown = [self.text(option.key) for option in OPTIONS if option.is_secret]
        return [text for text in (*shown, *self.service_params().values()) if text]

    def service_params(self) -> dict[str, str]:
        """Return the service parameters. CommandError: one is not KEY:VALUE."""
        params = {}
        for entry in self.get("svc_param"):
            key, colon, value = entry.partition(":")
            is_valid = key.strip().isascii() and value.isascii() and (key + value).isprintable()
            if not colon or not key.strip() or not is_valid:
                raise usage("--svc-param is not of the form KEY:VALUE")
            params[key.strip()] = value.strip()
        return params


class ConfigurationSources:
    """The sources below the flags: the environment and the `.env` files."""

    def __init__(self, environment: Variables, folder: Path, explicit: Path | None = None) -> None:
        """Read the files. `explicit` replaces the local file. CommandError: it can't be read."""
        self.home = Path(environment.get("HOME") or Path.home())
        self.warnings: list[str] = []
        """For the user, about the files."""
        self._sources: list[tuple[str, Variables]] = [("environment", environment)]
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
        secret = next((entry for entry in _SECRETS if variables.get(entry)), None)
        if secret and file.stat().st_mode & 0o077:
            self.warnings.append(
                f"SECURITY WARNING: others can read {secret} in {file}; run `chmod 600 {file}`"
            )

    def find(self, option: OptionSpec) -> ConfigValue | None:
        """Return an option's value and source; None if no source has it."""
        for source, variables in self._sources:
            if text := variables.get(option.variable):
                where = option.variable if source == "environment" else source
                name = f"{option.variable} of {source}"
                return ConfigValue(option.parse(text, name), where, text)
        return None

    def resolve(self, flags: Mapping[str, Any]) -> Configuration:
        """Return the effective values. CommandError: a value is invalid."""
        values = {}
        for option in OPTIONS:
            if option.key in flags:
                values[option.key] = _flag_value(option, flags[option.key])
            else:
                default = ConfigValue(option.built_in, "built-in default")
                values[option.key] = self.find(option) or default
        # An explicit choice between the two overrides a configured one.
        if flags.get("wait") and flags.get("async"):
            raise usage("--wait and --async exclude each other")
        if flags.get("wait") and not flags.get("async"):
            values["async"] = ConfigValue(False, "--wait", "false")
        return Configuration(values)


def _flag_value(option: OptionSpec, value: Any) -> ConfigValue:  # noqa: ANN401  from argparse
    source = f"--{option.name}"
    if isinstance(value, str):
        return ConfigValue(option.parse(value, source), source, value)
    text = ", ".join(value) if isinstance(value, list) else str(value).lower()
    return ConfigValue(value, source, text)


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


def describe_values(configuration: Configuration) -> list[dict[str, Any]]:
    """Return the name, value and source of each option, without secrets.

    `text` is the value as a user would write it.
    """
    rows = []
    for key, entry in configuration.values.items():
        option = BY_KEY[key]
        value = entry.value
        text = entry.text or option.default
        if option.is_secret and value:
            value = text = "[redacted]"
        if key == "svc_param":
            value = [f"{param.partition(':')[0]}:[redacted]" for param in value]
            text = ", ".join(value)
        if value is None and option.default:
            value = option.default
        rows.append({"name": option.name, "value": value, "source": entry.source, "text": text})
    return rows
