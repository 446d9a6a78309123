"""One setting as it was given: read, and refused where it makes no sense."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from trunkline.errors import ConfigurationError
from trunkline.settings.addresses import HostPort
from trunkline.settings.settings import Settings
from trunkline.settings.values import check_url, read_value

_KINDS: dict[str, Any] = {one.name: one.type for one in fields(Settings)}
NAMES = tuple(_KINDS)
"""Of all settings."""

# Least and most that make sense; what isn't here may be any number from 0 on.
_BOUNDS: dict[str, tuple[float, float]] = {
    "lease_s": (0.1, 3600),
    "ping_s": (0, 600),
    "task_limit": (1, 1_000_000),
    "queue_limit": (0, 1_000_000),
    "breaker_failures": (1, 1000),
    "breaker_successes": (1, 1000),
    "flush_interval_ms": (0, 5),
    "body_limit_bytes": (1024, 1 << 30),
    "request_timeout_s": (0.1, 3600),
    "connection_limit": (1, 1_000_000),
    "heartbeat_s": (0.1, 3600),
    "patience_s": (0, 3600),
    "auth_wait_s": (0, 30 * 24 * 3600),
    "trace_limit": (1, 10_000_000),
    "webhook_give_up_s": (1, 365 * 24 * 3600),
    "trace_age_s": (1, 10 * 365 * 24 * 3600),
}


def read_setting(name: str, value: object, *, where: str) -> Any:  # noqa: ANN401 the field's type, checked here
    """Return what setting `name` is when `value` is given for it.

    Raises:
        ConfigurationError: there is no such setting, or the value makes no sense for it.
    """
    if name not in _KINDS:
        problem = f"no such setting; there are: {', '.join(sorted(_KINDS))}"
        raise ConfigurationError(where=where, problem=problem)
    try:
        result = read_value(_KINDS[name], value)
        _check(name, result)
    except ValueError as error:
        raise ConfigurationError(where=where, problem=str(error)) from error
    return result


def _check(name: str, value: object) -> None:
    kind = _KINDS[name]
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = ", ".join(get_args(kind))
        raise ValueError(f"{value!r} is none of: {choices}")
    least, most = _BOUNDS.get(name, (0, float("inf")))
    numbers: list[Any] = list(value.values()) if isinstance(value, dict) else [value]
    for number in numbers:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if is_number and not least <= number <= most:
            raise ValueError(f"{number} is not between {least} and {most}")
    if name == "public_url" and value:
        check_url(str(value))
    if name == "public_grpc" and value:
        HostPort.parse(str(value))
