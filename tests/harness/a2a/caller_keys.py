"""API keys of the callers in tests: `key-of-` and the name of the caller."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys


def write_keys(file: Path, callers: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a file with a key for each caller.

    The fields of a caller are those of `ApiKey`; its account is `acme` unless they name another.
    """
    keys = [
        ApiKey(name, sha256=hash_key(f"key-of-{name}"), **{"account": "acme", **fields})
        for name, fields in callers.items()
    ]
    save_keys(file, keys)


def key_headers(name: str) -> dict[str, str]:
    """Return the headers of a caller; none for an empty name."""
    return {"X-API-Key": f"key-of-{name}"} if name else {}
