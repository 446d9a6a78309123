"""Agent cards and API keys as commands read and describe them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from trunkline.a2a_wire.protocol import CARD_PATH, V1_0, VERSION_HEADER
from trunkline.cli.audit import USED_SETTINGS
from trunkline.cli.options import load_command_settings
from trunkline.core.durations import parse_duration
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline_bridge.callers.api_keys import ApiKey, is_caller_name
from trunkline_bridge.callers.permissions import parse_methods

# Strict servers send the card of v0.3 to requests without a version. It has no signature.
CARD_HEADERS = {VERSION_HEADER: V1_0}
# The descriptions of `Signature.form`: the bytes of the card that the signature covers.
FORM_NAMES = {
    "specified": "in the specification's form",
    "pruned": "in the form of a2a-sdk, which doesn't cover what is empty",
    "as sent": "in the form in which it was sent",
}


def card_url(url: str) -> str:
    """Return the URL of an agent's card. InvalidArgumentError: it is not an HTTP URL."""
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("URL", f"{url!r} doesn't start with http:// or https://")
    return url if "/.well-known/" in url else url.rstrip("/") + CARD_PATH


def unknown_key(name: str) -> InvalidArgumentError:
    """Return the error for the name of no key."""
    return InvalidArgumentError("NAME", f"there is no key {name!r}; `trunkline keys list`")


def expire_key(key: ApiKey, end: datetime) -> ApiKey:
    """Return a key that expires at a time, or earlier."""
    return replace(key, expires=min(end, key.expires or end))


def key_fields(key: ApiKey) -> dict[str, object]:
    """Return a key as JSON, without its secret."""
    return {
        "name": key.name,
        "account": key.account,
        "expires": key.expires.isoformat() if key.expires else None,
        "agents": list(key.agents),
        "methods": list(key.methods),
    }


def format_expiry(key: ApiKey) -> str:
    """Return the time at which a key expires, as a cell of a table."""
    if key.expires is None:
        return "never"
    text = key.expires.isoformat(timespec="seconds")
    return f"{text} (expired)" if key.is_expired(datetime.now(UTC)) else text


KEY_COLUMNS: Final[Mapping[str, Callable[[ApiKey], str]]] = {
    "KEY": lambda key: key.name,
    "ACCOUNT": lambda key: key.account,
    "EXPIRES": format_expiry,
    "AGENTS": lambda key: ", ".join(key.agents) or "all",
    "METHODS": lambda key: ", ".join(key.methods) or "all",
}
"""The columns of the table of keys."""


def check_agents(agents: tuple[str, ...]) -> tuple[str, ...]:
    """Return the agents of a key. InvalidArgumentError: one is not a valid name."""
    for agent in agents:
        if not is_caller_name(agent):
            raise InvalidArgumentError("--agent", f"{agent!r} is not a valid name")
    return agents


def check_methods(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Return the methods of a key. InvalidArgumentError: there is no such method."""
    try:
        parse_methods(methods)
    except ValueError as error:
        raise InvalidArgumentError("--method", str(error)) from error
    return methods


def parse_expiry(option: str, text: str) -> datetime:
    """Return the time of an ISO 8601 date or time, or of a duration from now such as 90d or 12h."""
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        with suppress(ValueError):
            return now + timedelta(seconds=parse_duration(text))
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is no time; give a date, a time or a duration like 90d, 12h or 30m"
        raise InvalidArgumentError(option, problem) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def load_key_settings() -> Settings:
    """Load the settings that the commands for keys use."""
    return load_command_settings(uses={"api_keys_file", *USED_SETTINGS})


def keys_file(file: Path | None, settings: Settings) -> Path:
    """Return the file of keys. ConfigurationError: neither the option nor a setting names one."""
    path = file or settings.api_keys_file
    if path is None:
        problem = "name the file of keys here, or in trunkline.toml as api_keys_file"
        raise ConfigurationError("--file", problem)
    return path
