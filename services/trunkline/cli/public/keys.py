"""`trunkline keys`: who may call."""

from collections.abc import Sequence
from pathlib import Path

from trunkline.cli.outcome import Exit
from trunkline.cli.terminal import print_json, print_table, say
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.settings import load_settings
from trunkline_bridge.edge.api_keys import (
    ApiKey,
    generate_key,
    hash_key,
    is_account_name,
    is_caller_name,
    load_keys,
    save_keys,
)


def add(name: str, file: Path | None, *, account: str, as_json: bool) -> Exit:
    """Make a key, keep its SHA-256, and print it.

    Raises:
        ConfigurationError: the file is wrong.
        InvalidArgumentError: the name is taken, or names nothing.
    """
    path = _path(file)
    known = _known(path)
    if not is_caller_name(name) or any(key.name == name for key in known):
        raise InvalidArgumentError("NAME", f"{name!r} is taken, or no name; choose another")
    if not is_account_name(account):
        raise InvalidArgumentError("--account", f"{account!r} is no account; choose another")
    key = generate_key()
    save_keys(path, [*known, ApiKey(name, account, hash_key(key))])
    if as_json:
        print_json({"name": name, "account": account, "key": key, "file": str(path)})
    else:
        print(key)
        say(f"key {name!r} of account {account!r} is in {path}; it is shown this once")
    return Exit.OK


def show(file: Path | None, *, as_json: bool) -> Exit:
    """Print names and accounts. ConfigurationError: the file is wrong."""
    known = load_keys(_path(file))
    if as_json:
        print_json([{"name": key.name, "account": key.account} for key in known])
    else:
        print_table(("KEY", "ACCOUNT"), [(key.name, key.account) for key in known])
    return Exit.OK


def remove(name: str, file: Path | None, *, as_json: bool) -> Exit:
    """Take a key away.

    Raises:
        ConfigurationError: the file is wrong.
        InvalidArgumentError: there is no such key.
    """
    path = _path(file)
    known = load_keys(path)
    left = [key for key in known if key.name != name]
    if len(left) == len(known):
        raise InvalidArgumentError("NAME", f"there is no key {name!r}; `trunkline keys list`")
    save_keys(path, left)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        say(f"key {name!r} is gone")
    return Exit.OK


def _path(file: Path | None) -> Path:
    path = file or load_settings().api_keys_file
    if path is None:
        problem = "name the file of keys here, or in trunkline.toml as api_keys_file"
        raise ConfigurationError("--file", problem)
    return path


def _known(path: Path) -> Sequence[ApiKey]:
    return load_keys(path) if path.exists() else []
