"""Sets of public keys (JWKS, RFC 7517) from a URL or a file, as they are now."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from trunkline.errors import PeerUnavailableError
from trunkline_bridge.edge.api_keys import is_account_name, is_caller_name
from trunkline_bridge.edge.caller import Identity
from trunkline_bridge.http_client import fetch_document
from trunkline_bridge.settings import TokenSettings

if TYPE_CHECKING:
    from jwt import PyJWK


logger = logging.getLogger(__name__)

# Public-key algorithms that we know (RFC 7518, RFC 8037); secrets don't belong into such sets.
SIGNATURE_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)

# A set is fetched again when it is older, so that keys that were taken away don't stay.
MAX_AGE_S = 300.0
# A set that can't be fetched again is used for so long.
MAX_STALE_S = 24 * 3600.0
# Key ids that nobody knows make us look again, but no more often than this.
REFRESH_INTERVAL_S = 30.0
# The same after a fetch that failed.
RETRY_INTERVAL_S = 2.0


class JwkSet:
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
        if self._fetched_at is None or self._now() - self._fetched_at > MAX_STALE_S:
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
        is_fresh = self._fetched_at is not None and now - self._fetched_at < MAX_AGE_S
        return not (is_fresh and self._has(key_id))

    async def _fetch(self) -> None:
        # Now, because whoever made us fetch may leave before it is done.
        self._next_try_at = self._now() + RETRY_INTERVAL_S
        try:
            keys = parse_key_set(await fetch_document(self._source))
        except (PeerUnavailableError, ValueError) as error:
            logger.warning("key_set.unavailable", extra={"problem": str(error)})
            return
        self._keys = keys
        self._made.clear()
        self._fetched_at = self._now()
        self._next_try_at = self._fetched_at + REFRESH_INTERVAL_S


def parse_key_set(text: str | bytes) -> Sequence[Mapping[str, Any]]:
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


_MAX_TOKEN_LENGTH = 8192


class InvalidTokenError(Exception):
    """A token is not good; the text says why, and nothing of what is in it."""


class TokenVerifier:
    """Says who a token's bearer is."""

    def __init__(self, settings: TokenSettings, keys: JwkSet | None = None) -> None:
        self._settings = settings
        self._keys = keys or JwkSet(settings.keys)

    async def verify(self, token: str) -> Identity:
        """Return who it is.

        Raises:
            TokenError: the token isn't good.
            PeerUnavailableError: the issuer's keys can't be had, so nobody can say.
        """
        claims = await self._claims(token)
        account = claims.get(self._settings.account_claim)
        name = claims.get("sub", account)
        if not is_account_name(account) or not is_caller_name(name):
            claim = self._settings.account_claim
            raise InvalidTokenError(f"the token's claims (sub, {claim}) name no account and caller")
        return Identity(account, name, is_authenticated=True)

    async def _claims(self, token: str) -> dict[str, Any]:
        # Loaded by those who use tokens: it brings cryptography along.
        import jwt

        if len(token) > _MAX_TOKEN_LENGTH:
            raise InvalidTokenError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms:
                raise InvalidTokenError(
                    "the token is signed by an algorithm that isn't allowed here"
                )
            key = await self._keys.find(key_id, algorithm)
            if key is None:
                raise InvalidTokenError("the token is signed by a key that isn't known here")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._settings.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise InvalidTokenError("the token has expired") from error
        except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError) as error:
            raise InvalidTokenError("the token is not valid yet") from error
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:
            raise InvalidTokenError(
                "the token is not for here: its issuer or audience differ"
            ) from error
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidTokenError("the token is not valid") from error
        return claims
