"""Tables of the file: which there are, and what each of them holds."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, get_args

from trunkline.errors import ConfigurationError
from trunkline.settings.sections import AgentSettings, ModelSettings, RemoteAgentSettings
from trunkline.settings.settings import Settings
from trunkline.settings.values import check_url, read_value

# By the table's name: the setting that holds what `[NAME.KEY]` tables say, by their keys.
_NAMED: Final = {
    "agent": "agent_options",
    "models": "models",
    "remote": "remotes",
    "supervisor": "supervisors",
}
_KINDS: Final[Mapping[str, Any]] = {one.name: one.type for one in fields(Settings)}
_DAY_S: Final = 24 * 3600
# Least and most that make sense; what ends with _s is more than nothing and at most a day.
_BOUNDS: Final[Mapping[tuple[type, str], tuple[float, float]]] = {
    (AgentSettings, "timeout_s"): (0.001, 365 * _DAY_S),
    (ModelSettings, "max_tokens"): (1, 10_000_000),
    (ModelSettings, "turn_tokens"): (1, 1_000_000_000),
    (ModelSettings, "temperature"): (0, 2),
}


def read_tables(table: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Take the tables out of what a file holds, and return the settings that they are.

    Raises:
        ConfigurationError: it names the table and key that is wrong.
    """
    found: dict[str, Any] = {}
    for name, setting in _NAMED.items():
        if name in table:
            kind = get_args(_KINDS[setting])[1]
            found[setting] = _read_named(kind, table.pop(name), name, where=f"{where}{name}")
    return found


def read_table(kind: type[Any], given: object, *, where: str) -> Any:  # noqa: ANN401 one of `kind`
    """Return what a table says, as the dataclass that says what it may hold.

    Raises:
        ConfigurationError: something in it is wrong, or missing.
    """
    if not isinstance(given, dict):
        problem = f"expected a table; in it may stand: {', '.join(sorted(_names(kind)))}"
        raise ConfigurationError(where=where, problem=problem)
    found = {
        name: read_entry(kind, name, value, where=f"{where}.{name}")
        for name, value in given.items()
    }
    for one in fields(kind):
        is_required = one.default is MISSING and one.default_factory is MISSING
        if is_required and one.name not in found:
            raise ConfigurationError(where=where, problem=f"write {one.name} there")
    return kind(**found)


def read_entry(kind: type[Any], name: str, value: object, *, where: str) -> Any:  # noqa: ANN401 as the field is
    """Return what one key of a table is when `value` is given for it.

    Raises:
        ConfigurationError: there is no such key, or the value makes no sense for it.
    """
    kinds = _names(kind)
    if name not in kinds:
        problem = f"no such setting; there are: {', '.join(sorted(kinds))}"
        raise ConfigurationError(where=where, problem=problem)
    try:
        result = read_value(kinds[name], value)
        _check(kind, name, result)
    except ValueError as error:
        raise ConfigurationError(where=where, problem=str(error)) from error
    return result


def parse_remote(given: object, *, where: str) -> RemoteAgentSettings:
    """Return what a table says of a remote agent.

    Raises:
        ConfigurationError: something in it is wrong, or the URL is missing.
    """
    remote = read_table(RemoteAgentSettings, given, where=where)
    assert isinstance(remote, RemoteAgentSettings)  # noqa: S101 as read_table makes it
    return remote


def _read_named(kind: type[Any], given: object, name: str, *, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        problem = f"write [{name}.NAME], and under it any of: {', '.join(_names(kind))}"
        raise ConfigurationError(where=where, problem=problem)
    return {key: read_table(kind, one, where=f"{where}.{key}") for key, one in given.items()}


def _names(kind: type[Any]) -> dict[str, Any]:
    return {one.name: one.type for one in fields(kind)}


def _check(kind: type[Any], name: str, value: object) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if bounds := _BOUNDS.get((kind, name)):
            if not bounds[0] <= value <= bounds[1]:
                raise ValueError(f"{value} is not between {bounds[0]} and {bounds[1]}")
        elif name.endswith("_s") and not 0 < value <= _DAY_S:
            raise ValueError(f"{value} is not between 0 and {_DAY_S}")
    is_url = name == "url" or name.endswith("_url")
    # Elsewhere an empty one stands for none.
    if is_url and (value or kind is RemoteAgentSettings):
        check_url(str(value))
