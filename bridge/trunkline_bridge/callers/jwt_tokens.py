"""Verifies JWTs by the keys of a JWKS (RFC 7517, RFC 7519), as RFC 8725 recommends."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from trunkline.a2a_wire.documents import fetch_document
from trunkline.a2a_wire.key_sets import parse_key_set
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, PeerUnavailableError
from trunkline.observe.audit import ActorKind
from trunkline_bridge.callers.api_keys import is_account_name, is_caller_name
from trunkline_bridge.callers.caller import CallerIdentity
from trunkline_bridge.callers.permissions import UNRESTRICTED, Grant, Permissions, parse_methods

if TYPE_CHECKING:
    from jwt import PyJWK


logger = logging.getLogger(__name__)

# Age at which a set is fetched again, so that removed keys disappear.
MAX_AGE_S = 300.0
# Age up to which a set is used if fetches fail.
MAX_STALE_S = 24 * 3600.0
# Minimum interval between two fetches: a token with an unknown key id may cause one.
REFRESH_INTERVAL_S = 30.0
# Minimum interval after a failed fetch.
RETRY_INTERVAL_S = 2.0
_MAX_TOKEN_LENGTH = 8192

# The types of tokens for callers (RFC 7519, 5.1; RFC 9068, 2.1). Tokens for other purposes that the
# same issuer signs, such as logout tokens, have other types (RFC 8725, 3.11).
_TYPES = frozenset({"jwt", "at+jwt"})
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_TIMES = ("exp", "nbf", "iat")
# The end of the year 9999, the last of most calendars.
_LATEST_S = 253402300799


class JwkSet:
    """The public keys of a JWKS, fetched at the first use and refreshed later."""

    def __init__(self, source: str, now: Callable[[], float] = monotonic) -> None:
        """`source` is an http(s) URL or the path of a file."""
        self._source = source
        self._now = now
        self._lock = asyncio.Lock()
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._fetched_at: float | None = None
        self._next_try_at = now()
        self._built: dict[tuple[str, str], PyJWK] = {}

    async def find(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        """Return the key with an id, for an algorithm; without an id, the only suitable key.

        The result is None if there is no such key, or if several keys are suitable.

        Raises:
            PeerUnavailableError: the keys cannot be fetched.
        """
        # Wait for a fetch in progress only if the key is unknown: the new set may have it.
        if self._lock.locked() and not self._has(key_id):
            async with self._lock:
                pass
        if self._is_due(key_id) and not self._lock.locked():
            async with self._lock:
                await self._fetch()
        if self._fetched_at is None or self._now() - self._fetched_at > MAX_STALE_S:
            problem = "they can't be fetched now; try again in a few seconds"
            raise PeerUnavailableError("the keys of tokens", problem)
        return self._build_key(key_id, algorithm)

    def _build_key(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        from jwt import PyJWK, PyJWTError

        if key_id is not None and (cached := self._built.get((key_id, algorithm))):
            return cached
        candidates = []
        for key in self._keys:
            if key_id not in (None, key.get("kid")) or key.get("alg", algorithm) != algorithm:
                continue
            try:
                candidates.append(PyJWK(dict(key), algorithm))
            except PyJWTError:
                # The algorithm needs a key of another type.
                continue
        if len(candidates) != 1:
            return None
        if key_id is not None:
            self._built[key_id, algorithm] = candidates[0]
        return candidates[0]

    def _has(self, key_id: str | None) -> bool:
        return any(key_id in (None, key.get("kid")) for key in self._keys)

    def _is_due(self, key_id: str | None) -> bool:
        now = self._now()
        if now < self._next_try_at:
            return False
        is_fresh = self._fetched_at is not None and now - self._fetched_at < MAX_AGE_S
        return not (is_fresh and self._has(key_id))

    async def _fetch(self) -> None:
        # Set before the fetch, since the caller may be cancelled during it.
        self._next_try_at = self._now() + RETRY_INTERVAL_S
        try:
            keys = parse_key_set(await fetch_document(self._source))
        except (PeerUnavailableError, ValueError) as error:
            logger.warning("key_set.unavailable", extra={"problem": str(error)})
            return
        self._keys = keys
        self._built.clear()
        self._fetched_at = self._now()
        self._next_try_at = self._fetched_at + REFRESH_INTERVAL_S


class InvalidTokenError(Exception):
    """A token is invalid. The text gives the reason and quotes nothing of the token."""

    def __init__(self, problem: str, *, account: str = "") -> None:
        """`account` is the account of a token with a valid signature, otherwise empty."""
        super().__init__(problem)
        self.account = account


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A token that was accepted, which expires."""

    expires_at: float
    """The Unix time from which on it is not accepted."""

    def problem(self) -> str:
        """Return why the token is no longer accepted, or an empty text if it is accepted."""
        has_expired = datetime.now(UTC).timestamp() >= self.expires_at
        return "the token has expired" if has_expired else ""


class TokenVerifier:
    """Identifies the bearer of a token."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError if a scope permits an unknown method."""
        self._settings = settings
        self._keys = JwkSet(settings.jwt_keys)
        self._scopes = _parse_scopes(settings)

    async def verify(self, token: str) -> CallerIdentity:
        """Return the identity of the bearer.

        Its account has a prefix, so that the issuer can't name the account of an API key.

        Raises:
            InvalidTokenError: the token is invalid.
            PeerUnavailableError: the keys of the issuer cannot be fetched.
        """
        claims, key_id = await self._claims(token)
        account = claims.get(self._settings.jwt_account_claim)
        name = claims.get("sub", account)
        if not is_account_name(account) or not is_caller_name(name):
            claim = self._settings.jwt_account_claim
            raise InvalidTokenError(f"the token's claims sub and {claim} are no caller and account")
        return CallerIdentity(
            self._settings.jwt_account_prefix + account,
            name,
            is_authenticated=True,
            kind=ActorKind.JWT,
            key_id=key_id or "",
            permissions=self._permissions(claims),
            credential=TokenCredential(claims["exp"] + self._settings.jwt_leeway_s),
        )

    def _permissions(self, claims: Mapping[str, object]) -> Permissions:
        if not self._scopes:
            return UNRESTRICTED
        granted = _read_scopes(claims)
        return Permissions(
            [scope for scope in self._scopes if scope.scope in granted], self._scopes
        )

    def _account_of(self, token: str) -> str:
        """Return the account of a token with a verified signature, or an empty text."""
        import jwt

        claims = jwt.decode(token, options={"verify_signature": False})
        account = claims.get(self._settings.jwt_account_claim)
        return self._settings.jwt_account_prefix + account if is_account_name(account) else ""

    async def _claims(self, token: str) -> tuple[dict[str, Any], str | None]:
        """Return the claims of a token, and the id of the key that signed it."""
        # Imported only for tokens: cryptography is slow to load.
        import jwt

        if len(token) > _MAX_TOKEN_LENGTH:
            raise InvalidTokenError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            if not _is_callers_type(header.get("typ", "JWT")):
                raise InvalidTokenError("the token is of another type")
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.jwt_algorithms:
                raise InvalidTokenError("the token's signature algorithm is not allowed")
            key = await self._keys.find(key_id, algorithm)
            if key is None:
                raise InvalidTokenError("the token is signed by an unknown key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._settings.jwt_algorithms),
                audience=self._settings.jwt_audience,
                issuer=self._settings.jwt_issuer,
                leeway=self._settings.jwt_leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError as error:
            # The signature is verified before the claims.
            account = self._account_of(token)
            raise InvalidTokenError("the token has expired", account=account) from error
        except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError) as error:
            raise InvalidTokenError("the token is not valid yet") from error
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:
            raise InvalidTokenError("the token has another issuer or audience") from error
        # ArithmeticError: an infinite time.
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise InvalidTokenError("the token is not valid") from error
        _check_times(claims)
        return claims, key_id


def _parse_scopes(settings: Settings) -> Sequence[Grant]:
    grants = []
    for name, scope in settings.scopes.items():
        if _SCOPE.fullmatch(name) is None:
            problem = "a scope has no spaces, quotes and backslashes (RFC 6749, 3.3)"
            raise ConfigurationError(f"scope.{name}", problem)
        try:
            methods = parse_methods(scope.methods)
        except ValueError as error:
            raise ConfigurationError(f"scope.{name}.methods", str(error)) from error
        grants.append(Grant(scope.agents, methods, name))
    return grants


def _read_scopes(claims: Mapping[str, object]) -> frozenset[str]:
    """Return the scopes in `scope`, a text (RFC 9068, 2.2.3), and in `scp`, a text or a list."""
    scopes: set[str] = set()
    for value in (claims.get("scope"), claims.get("scp")):
        if isinstance(value, str):
            scopes.update(value.split())
        elif isinstance(value, list):
            scopes.update(scope for scope in value if isinstance(scope, str))
    return frozenset(scopes)


def _is_callers_type(value: object) -> bool:
    """Return whether a `typ` is one of tokens for callers. It is a media type without case."""
    return isinstance(value, str) and value.lower().removeprefix("application/") in _TYPES


def _check_times(claims: Mapping[str, object]) -> None:
    for name in _TIMES:
        if name in claims and not _is_time(claims[name]):
            raise InvalidTokenError(f"the token's claim {name} is no time")


def _is_time(value: object) -> bool:
    """Return whether a claim is a NumericDate (RFC 7519, 2). PyJWT also takes texts and bools."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= _LATEST_S
