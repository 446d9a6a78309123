"""Sets of public keys (JWKS, RFC 7517) that signatures of cards and tokens are checked with."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

# Public-key algorithms only (RFC 7518, RFC 8037): key sets must not contain secrets.
SIGNATURE_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)


def parse_key_set(text: str | bytes) -> Sequence[Mapping[str, Any]]:
    """Return the public signature keys of a set.

    Raises:
        ValueError: it is not a JWKS.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("is not JSON") from error
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list):
        raise ValueError("is no JWKS: it has no list `keys`")
    return [
        key
        for key in keys
        if isinstance(key, dict)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    ]
