"""Sets of public keys (JWKS, RFC 7517) from a URL or a file, as they are now."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from trunkline.errors import PeerUnavailableError
from trunkline_bridge.fetching import fetch

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

# Public-key algorithms that we know (RFC 7518, RFC 8037); secrets don't belong into such sets.
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)

# A set is fetched again when it is older, so that keys that were taken away don't stay.
FRESH_S = 300.0
# A set that can't be fetched again is used for so long.
USABLE_S = 24 * 3600.0
# Key ids that nobody knows make us look again, but no more often than this.
PAUSE_S = 30.0
# The same after a fetch that failed.
RETRY_S = 2.0


class KeySet:
    """Public keys by their ids, fetched when they are first asked for."""

    def __init__(self, source: str, now: Callable[[], float] = monotonic) -> None:
        """`source` is an http(s) URL or the path of a file."""
        self._source = source
        self._now = now
        self._lock = asyncio.Lock()
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._fetched_at: float | None = None
        self._next_try_at = now()
        self._made: dict[tuple[str, str], PyJWK] = {}

    async def find(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        """Return the key of an id, ready for an algorithm; without an id, the only key that fits.

        Raises:
            PeerUnavailableError: the keys can't be fetched.
        """
        # Whoever is fetching may bring what is missing; who has his key waits for nobody.
        if self._lock.locked() and not self._has(key_id):
            async with self._lock:
                pass
        if self._is_due(key_id) and not self._lock.locked():
            async with self._lock:
                await self._fetch()
        if self._fetched_at is None or self._now() - self._fetched_at > USABLE_S:
            problem = "they can't be fetched now; try again in a few seconds"
            raise PeerUnavailableError("the keys of tokens", problem)
        return self._key(key_id, algorithm)

    def _key(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        from jwt import PyJWK, PyJWTError

        if key_id is not None and (found := self._made.get((key_id, algorithm))):
            return found
        fitting = []
        for key in self._keys:
            if key_id not in (None, key.get("kid")) or key.get("alg", algorithm) != algorithm:
                continue
            try:
                fitting.append(PyJWK(dict(key), algorithm))
            except PyJWTError:
                # Of another kind than the algorithm's.
                continue
        if len(fitting) != 1:
            return None
        if key_id is not None:
            self._made[key_id, algorithm] = fitting[0]
        return fitting[0]

    def _has(self, key_id: str | None) -> bool:
        return any(key_id in (None, key.get("kid")) for key in self._keys)

    def _is_due(self, key_id: str | None) -> bool:
        now = self._now()
        if now < self._next_try_at:
            return False
        is_fresh = self._fetched_at is not None and now - self._fetched_at < FRESH_S
        return not (is_fresh and self._has(key_id))

    async def _fetch(self) -> None:
        # Now, because whoever made us fetch may leave before it is done.
        self._next_try_at = self._now() + RETRY_S
        try:
            keys = read_key_set(await fetch(self._source))
        except (PeerUnavailableError, ValueError) as error:
            logger.warning("key_set.unavailable", extra={"problem": str(error)})
            return
        self._keys = keys
        self._made.clear()
        self._fetched_at = self._now()
        self._next_try_at = self._fetched_at + PAUSE_S


def read_key_set(text: str | bytes) -> Sequence[Mapping[str, Any]]:
    """Return the keys of a set that are public and for signatures.

    Raises:
        ValueError: it is no such set.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("is not JSON") from error
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list):
        raise ValueError("is no set of keys: it has no list `keys`")
    return [
        key
        for key in keys
        if isinstance(key, dict)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    ]
