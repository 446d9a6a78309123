"""API keys: a file with the name, account and hash of each key.

```toml
[[key]]
name = "ci"
account = "acme"
sha256 = "…"                      # of the key, in hexadecimal
expires = 2027-01-31T00:00:00Z    # optional: not accepted from then on
agents = ["math", "research-*"]   # optional: only for these agents
methods = ["read", "CancelTask"]  # optional: only for these methods
```

A name may have several keys, of which all but one expire. That is how a key is rotated: the new one
works at once, the old one until it expires.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TypeGuard

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.private_files import read_file_version, read_private_file
from trunkline.errors import ConfigurationError
from trunkline_bridge.callers.permissions import UNRESTRICTED, Grant, Permissions, parse_methods

logger = logging.getLogger(__name__)

# Interval of checks for changes of the file: a removed key may be accepted for so long.
RELOAD_INTERVAL_S = 1.0

_PREFIX = "tk_"
_KEY_BYTES = 32
_KEY_ID_LENGTH = 12
_REQUIRED = {"name", "account", "sha256"}
_OPTIONAL = {"expires", "agents", "methods"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^\x00-\x1f\x7f\"\\]{1,200}")
_FILE_HEADER = (
    "# API keys of callers; the file holds only their SHA-256. See `trunkline keys --help`.\n"
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An entry in the file of keys."""

    name: str
    account: str
    sha256: str
    """Hash of the key, in hexadecimal."""
    expires: datetime | None = None
    """The time from which on the key is not accepted, or None if it does not expire."""
    agents: tuple[str, ...] = ()
    """The permitted agents, as names or patterns with `*`. If empty, all agents are permitted."""
    methods: tuple[str, ...] = ()
    """The permitted methods, by their names in v1.0, or `read`. If empty, all are permitted."""

    @property
    def permissions(self) -> Permissions:
        """The agents and methods that the key is for."""
        if not self.agents and not self.methods:
            return UNRESTRICTED
        return Permissions((Grant(self.agents, parse_methods(self.methods)),))

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key is not accepted any longer."""
        return self.expires is not None and now >= self.expires

    @property
    def key_id(self) -> str:
        """Tells keys of the same name apart: the beginning of the hash, which reveals nothing."""
        return self.sha256[:_KEY_ID_LENGTH]


def is_caller_name(name: object) -> TypeGuard[str]:
    """Return whether a value is a valid name of a caller."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_account_name(account: object) -> TypeGuard[str]:
    """Return whether a value is a valid account, other than the account of anonymous callers."""
    return is_caller_name(account) and account != ANONYMOUS_ACCOUNT


def generate_key() -> str:
    """Return a random key with 256 bits of entropy."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_key(key: str) -> str:
    """Return the hash of a key for the file. A fast hash is enough for random keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def load_keys(path: Path) -> Sequence[ApiKey]:
    """Return the keys of a file.

    Raises:
        ConfigurationError: the file cannot be read or is malformed, or other users may write to
            it.
    """
    try:
        # Other users may read the file, because it holds only hashes of random keys.
        table = tomllib.loads(read_private_file(path, is_secret=False).decode())
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(str(path), f"is not TOML: {error}") from error
    entries = table.pop("key", [])
    if table or not isinstance(entries, list):
        raise ConfigurationError(str(path), "must contain only [[key]] tables")
    keys = [
        _parse_key(entry, where=f"{path}: key {number}") for number, entry in enumerate(entries, 1)
    ]
    _check_names(path, keys)
    return keys


def save_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Replace a file of keys atomically. Only its owner may read it.

    Raises:
        ConfigurationError: the file cannot be written, or is a link, which would be replaced.
    """
    if path.is_symlink():
        raise ConfigurationError(str(path), "it is a symbolic link; use the file itself")
    tables = [_format_key(key) for key in keys]
    try:
        # mkstemp creates the file with mode 0600.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_FILE_HEADER + "".join(tables))
        Path(temporary).replace(path)
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be written: {error.strerror}") from error


class ApiKeyFile:
    """The keys of a file. Changes of the file take effect within a second.

    While the file is unreadable or malformed, no key is accepted.
    """

    def __init__(self, path: Path, now: Callable[[], float] = monotonic) -> None:
        """Load the file. ConfigurationError: it cannot be read or is malformed."""
        self._path = path
        self._now = now
        self._checked_at = now()
        self._version = read_file_version(path)
        self._keys = load_keys(path)
        # The index of keys that were found before. A lookup of a caller's key compares all.
        self._indexed_keys: Sequence[ApiKey] = ()
        self._by_hash: Mapping[str, ApiKey] = {}

    def find(self, key: str) -> ApiKey | None:
        """Return the entry of a key, or None if it is unknown.

        The time of the search does not depend on the key. The key may have expired.
        """
        self._reload_if_changed()
        digest = hash_key(key)
        match = None
        for entry in self._keys:
            if hmac.compare_digest(entry.sha256, digest):
                match = entry
        return match

    def find_again(self, entry: ApiKey) -> ApiKey | None:
        """Return the present entry of a key that was found before, or None if it was removed."""
        self._reload_if_changed()
        if self._keys is not self._indexed_keys:
            self._indexed_keys = self._keys
            self._by_hash = {key.sha256: key for key in self._keys}
        return self._by_hash.get(entry.sha256)

    def _reload_if_changed(self) -> None:
        now = self._now()
        if now - self._checked_at < RELOAD_INTERVAL_S:
            return
        self._checked_at = now
        version = read_file_version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._keys = load_keys(self._path)
        except ConfigurationError as error:
            self._keys = ()
            logger.warning("api_keys.unreadable", extra={"problem": str(error)})


@dataclass(frozen=True, slots=True)
class ApiKeyCredential:
    """A key that was accepted, which the file may remove or let expire."""

    file: ApiKeyFile
    key: ApiKey

    def problem(self) -> str:
        """Return why the key is no longer accepted, or an empty text if it is accepted."""
        entry = self.file.find_again(self.key)
        if entry is None:
            return "the API key is no longer accepted"
        return "the API key has expired" if entry.is_expired(datetime.now(UTC)) else ""


def _check_names(path: Path, keys: Sequence[ApiKey]) -> None:
    by_name: dict[str, list[ApiKey]] = {}
    for key in keys:
        by_name.setdefault(key.name, []).append(key)
    for name, same in by_name.items():
        if len({key.account for key in same}) > 1:
            raise ConfigurationError(str(path), f"the keys named {name!r} have several accounts")
        if sum(key.expires is None for key in same) > 1:
            problem = f"two keys have the same name {name!r}; all but one need `expires`"
            raise ConfigurationError(str(path), problem)


def _parse_key(entry: object, *, where: str) -> ApiKey:
    if not isinstance(entry, dict) or not _REQUIRED <= set(entry) <= _REQUIRED | _OPTIONAL:
        problem = (
            "must have name, account and sha256, may have expires, agents and methods, and nothing "
            "else"
        )
        raise ConfigurationError(where, problem)
    name, account, digest = entry["name"], entry["account"], entry["sha256"]
    if not is_caller_name(name):
        raise ConfigurationError(where, "name must be 1 to 200 characters, without quotes")
    if not is_account_name(account):
        problem = (
            f"account must be 1 to 200 characters, without quotes, and not {ANONYMOUS_ACCOUNT!r}"
        )
        raise ConfigurationError(where, problem)
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise ConfigurationError(where, "sha256 must be 64 hexadecimal digits, in lower case")
    expires = entry.get("expires")
    if expires is not None and not isinstance(expires, datetime):
        raise ConfigurationError(where, "expires must be a date with a time, without quotes")
    if expires is not None and expires.tzinfo is None:
        raise ConfigurationError(where, "expires has no time zone; write Z behind it for UTC")
    methods = _parse_names(entry, "methods", where=where)
    try:
        parse_methods(methods)
    except ValueError as error:
        raise ConfigurationError(where, f"methods: {error}") from error
    agents = _parse_names(entry, "agents", where=where)
    return ApiKey(name, account, digest, expires, agents, methods)


def _parse_names(entry: Mapping[str, object], field: str, *, where: str) -> tuple[str, ...]:
    """Return a list of names; missing: empty, which means all."""
    names = entry.get(field)
    if names is None:
        return ()
    # A list that became empty must not permit everything.
    if not isinstance(names, list) or not names or not all(map(is_caller_name, names)):
        problem = f"{field} must be a list of names, at least one; without {field}, it is for all"
        raise ConfigurationError(where, problem)
    return tuple(names)


def _format_key(key: ApiKey) -> str:
    fields = {
        "name": _toml_string(key.name),
        "account": _toml_string(key.account),
        "sha256": _toml_string(key.sha256),
    }
    if key.expires is not None:
        fields["expires"] = key.expires.isoformat()
    for field, names in (("agents", key.agents), ("methods", key.methods)):
        if names:
            fields[field] = f"[{', '.join(map(_toml_string, names))}]"
    return "\n[[key]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


def _toml_string(text: str) -> str:
    # For the characters of names, a JSON string is a TOML string.
    return json.dumps(text, ensure_ascii=False)
