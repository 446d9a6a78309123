"""API keys: a file that says whose each is, without the keys themselves.

```toml
[[key]]
name = "ci"
account = "acme"
sha256 = "…"        # of the key, in hex
```
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeGuard

from trunkline.errors import ConfigurationError
from trunkline.identity import ANONYMOUS_ACCOUNT

logger = logging.getLogger(__name__)

# How long a key that was taken away may still be good for.
RELOAD_INTERVAL_S = 1.0

_PREFIX = "tk_"
_KEY_BYTES = 32
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^\x00-\x1f\x7f\"\\]{1,200}")
_FILE_HEADER = "# API keys of callers; only their SHA-256 is kept. See `trunkline keys --help`.\n"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Whose a key is."""

    name: str
    account: str
    sha256: str
    """Of the key, in hex."""


def is_caller_name(name: object) -> TypeGuard[str]:
    """Whether it may be the name of a caller."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_account_name(account: object) -> TypeGuard[str]:
    """Whether it may be the name of an account: not of those who have none."""
    return is_caller_name(account) and account != ANONYMOUS_ACCOUNT


def generate_key() -> str:
    """Return a key that nobody guesses."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_key(key: str) -> str:
    """Return what the file says of a key. A random key needs no slow hash: it can't be guessed."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def load_keys(path: Path) -> Sequence[ApiKey]:
    """Read a file of keys.

    Raises:
        ConfigurationError: it can't be read, or isn't such a file.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(str(path), f"is not TOML: {error}") from error
    entries = table.pop("key", [])
    if table or not isinstance(entries, list):
        raise ConfigurationError(str(path), "holds [[key]] tables and nothing else")
    keys = [
        _parse_key(entry, where=f"{path}: key {place}") for place, entry in enumerate(entries, 1)
    ]
    if len({key.name for key in keys}) < len(keys):
        raise ConfigurationError(str(path), "two keys have the same name")
    return keys


def save_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Replace a file of keys, all at once; only its owner may read it.

    Raises:
        ConfigurationError: it can't be written.
    """
    tables = [
        f"\n[[key]]\nname = {_toml_string(key.name)}\naccount = {_toml_string(key.account)}\n"
        f"sha256 = {_toml_string(key.sha256)}\n"
        for key in keys
    ]
    try:
        # Made for its owner alone.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_FILE_HEADER + "".join(tables))
        Path(temporary).replace(path)
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be written: {error.strerror}") from error


class ApiKeyFile:
    """The keys of a file, as the file is now: what is added or taken away holds within a second.

    A file that has become unreadable has no keys.
    """

    def __init__(self, path: Path, now: Callable[[], float] = monotonic) -> None:
        """ConfigurationError: the file is wrong."""
        self._path = path
        self._now = now
        self._looked_at = now()
        self._stamp = _file_version(path)
        self._keys = load_keys(path)

    def find(self, key: str) -> ApiKey | None:
        """Return whose a key is; how long that takes tells nothing about the keys."""
        self._look()
        digest = hash_key(key)
        found = None
        for known in self._keys:
            if hmac.compare_digest(known.sha256, digest):
                found = known
        return found

    def _look(self) -> None:
        now = self._now()
        if now - self._looked_at < RELOAD_INTERVAL_S:
            return
        self._looked_at = now
        stamp = _file_version(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = load_keys(self._path)
        except ConfigurationError as error:
            self._keys = ()
            logger.warning("api_keys.unreadable", extra={"problem": str(error)})


def _file_version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _parse_key(entry: object, *, where: str) -> ApiKey:
    if not isinstance(entry, dict) or set(entry) != {"name", "account", "sha256"}:
        raise ConfigurationError(where, "has name, account and sha256")
    name, account, digest = entry["name"], entry["account"], entry["sha256"]
    if not is_caller_name(name):
        raise ConfigurationError(where, "its name is 1 to 200 characters, without quotes")
    if not is_account_name(account):
        problem = (
            f"its account is 1 to 200 characters, without quotes, and not {ANONYMOUS_ACCOUNT!r}"
        )
        raise ConfigurationError(where, problem)
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise ConfigurationError(where, "its sha256 is 64 hexadecimal digits, in lower case")
    return ApiKey(name, account, digest)


def _toml_string(text: str) -> str:
    # JSON's strings are TOML's, too, for what names may hold.
    return json.dumps(text, ensure_ascii=False)
