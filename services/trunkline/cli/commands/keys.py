"""The commands for the API keys of callers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from trunkline.cli.declaration import command
from trunkline.cli.options import (
    AUDIT_SETTINGS,
    JsonOption,
    argument,
    flag,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json, print_list, print_stderr
from trunkline.cli.times import parse_expiry
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline_bridge.callers.api_keys import (
    ApiKey,
    generate_key,
    hash_key,
    is_account_name,
    is_caller_name,
    load_keys,
    save_keys,
)
from trunkline_bridge.callers.permissions import READ, parse_methods

group = typer.Typer()

KeyFile = Annotated[Path | None, option("FILE", "The keys. [api_keys_file]", "--file")]
Name = Annotated[str, argument("NAME", "Of the key.")]
ExpiresOption = Annotated[str, option("TIME", "Reject it from then on: 90d, a time. [never]")]


@command(group, "add")
def add_key(
    name: Name,
    file: KeyFile = None,
    *,
    account: Annotated[str, option("NAME", "The account of its tasks. [NAME]")] = "",
    expires: ExpiresOption = "",
    agent: Annotated[
        list[str] | None, option("NAME", "Only for this agent; may be repeated. * is a wildcard.")
    ] = None,
    method: Annotated[
        list[str] | None, option("NAME", "Only for this method of A2A 1.0; may be repeated.")
    ] = None,
    read_only: Annotated[
        bool, flag("Only for methods that change nothing.", "--read-only")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create a key and print it. It is shown only once: the file has its SHA-256."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    account = account or name
    settings = load_key_settings()
    path = keys_file(file, settings)
    keys = load_keys(path) if path.exists() else []
    if not is_caller_name(name) or any(key.name == name for key in keys):
        problem = f"{name!r} is taken or not a valid name; choose another"
        raise InvalidArgumentError("NAME", f"{problem}, or `trunkline keys rotate`")
    if not is_account_name(account):
        raise InvalidArgumentError(
            "--account", f"{account!r} is not a valid account; choose another"
        )
    secret = generate_key()
    entry = ApiKey(
        name,
        account,
        hash_key(secret),
        parse_expiry("--expires", expires) if expires else None,
        check_agents(tuple(agent or ())),
        check_methods((READ, *(method or ())) if read_only else tuple(method or ())),
    )
    save_keys(path, [*keys, entry])
    record_act(settings, Action.KEY_ADD, key=name, key_id=entry.key_id, account=account)
    if json:
        print_json({**key_fields(entry), "key": secret, "file": str(path)})
    else:
        print(secret)
        print_stderr(f"key {name!r} of account {account!r} is in {path}; it is shown only once")


@command(group, "rotate")
def rotate_key(
    name: Name,
    file: KeyFile = None,
    *,
    until: Annotated[
        str, option("TIME", "The old key works until then: 12h, 7d or a time.", show_default=True)
    ] = "1d",
    expires: ExpiresOption = "",
    json: JsonOption = False,
) -> None:
    """Create another key of a name and print it. The old one works for a while."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_key_settings()
    path = keys_file(file, settings)
    keys = load_keys(path)
    now = datetime.now(UTC)
    same = [key for key in keys if key.name == name]
    if not same:
        raise unknown_key(name)
    end = parse_expiry("--until", until)
    secret = generate_key()
    entry = replace(
        same[-1],
        sha256=hash_key(secret),
        expires=parse_expiry("--expires", expires) if expires else None,
    )
    # Expired keys are of no more use.
    old = [expire_key(key, end) for key in same if not key.is_expired(now)]
    others = [key for key in keys if key.name != name]
    save_keys(path, [*others, *old, entry])
    record_act(settings, Action.KEY_ROTATE, key=name, key_id=entry.key_id, account=entry.account)
    if json:
        facts = {**key_fields(entry), "key": secret, "file": str(path)}
        print_json({**facts, "old_until": end.isoformat()})
    else:
        print(secret)
        print_stderr(f"the old key {name!r} works until {end.isoformat()}; this is shown only once")


@command(group, "list")
def list_keys(file: KeyFile = None, *, json: JsonOption = False) -> None:
    """List the keys: names, accounts and limits."""
    entries = load_keys(keys_file(file, load_key_settings()))
    print_list(entries, KEY_COLUMNS, key_fields, as_json=json)


@command(group, "remove")
def remove_key(name: Name, file: KeyFile = None, *, json: JsonOption = False) -> None:
    """Remove the keys of a name. A running mesh rejects them within a second."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_key_settings()
    path = keys_file(file, settings)
    keys = load_keys(path)
    remaining = [key for key in keys if key.name != name]
    if len(remaining) == len(keys):
        raise unknown_key(name)
    save_keys(path, remaining)
    record_act(settings, Action.KEY_REMOVE, key=name)
    if json:
        print_json({"name": name, "removed": True})
    else:
        print_stderr(f"key {name!r} is gone")


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


def load_key_settings() -> Settings:
    """Load the settings that the commands for keys use."""
    return load_command_settings(uses={"api_keys_file", *AUDIT_SETTINGS})


def keys_file(file: Path | None, settings: Settings) -> Path:
    """Return the file of keys. ConfigurationError: neither the option nor a setting names one."""
    path = file or settings.api_keys_file
    if path is None:
        problem = "name the file of keys here, or in trunkline.toml as api_keys_file"
        raise ConfigurationError("--file", problem)
    return path
