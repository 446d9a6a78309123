"""Join tokens: JWTs (RFC 7519, ES256) by which other users and machines get a first certificate."""

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trunkline.core.identity.certificates import CertificateAuthority
from trunkline.core.identity.names import Identity
from trunkline.errors import ConfigurationError, UnauthenticatedError

_TYPE: Final = "trunkline-join+jwt"
_ALGORITHM: Final = "ES256"
_CLAIMS: Final = ("exp", "iat", "iss", "jti", "sub", "uses", "mesh", "join", "roots")
# Tokens are pasted into terminals and variables.
_LIMIT_CHARS: Final = 16_384


@dataclass(frozen=True, slots=True)
class JoinToken:
    """The content of a join token, of which its holder trusts `roots`."""

    mesh: str
    """The address of the mesh, or the addresses of its registries, separated by commas."""
    join_addresses: Sequence[str]
    """The addresses that take the token: one for each registry."""
    roots: bytes
    """The roots of the mesh, PEM: two while its root changes."""


def create_token(
    authority: CertificateAuthority,
    identity: Identity,
    *,
    mesh: str,
    join_addresses: Sequence[str],
    lifetime: timedelta,
    uses: int,
) -> str:
    """Return a token that lets `uses` processes join with an identity until its lifetime ends."""
    now = datetime.now(UTC)
    claims = {
        "iss": authority.mesh,
        "sub": str(identity),
        "jti": secrets.token_urlsafe(16),
        "iat": int(now.timestamp()),
        "exp": int((now + lifetime).timestamp()),
        "uses": uses,
        "mesh": mesh,
        "join": ",".join(join_addresses),
        "roots": [
            base64.b64encode(root.public_bytes(serialization.Encoding.DER)).decode()
            for root in authority.roots
        ],
    }
    return jwt.encode(claims, authority.key, algorithm=_ALGORITHM, headers={"typ": _TYPE})


def read_token(token: str) -> JoinToken:
    """Return the content of a token, which its holder trusts.

    Raises:
        ConfigurationError: it is not a join token.
    """
    try:
        if len(token) > _LIMIT_CHARS:
            raise ValueError("it is too long")
        claims = jwt.decode(token, options={"verify_signature": False})
        roots = [
            x509.load_der_x509_certificate(base64.b64decode(root, validate=True))
            for root in claims["roots"]
        ]
        encoded = b"".join(root.public_bytes(serialization.Encoding.PEM) for root in roots)
        return JoinToken(str(claims["mesh"]), tuple(str(claims["join"]).split(",")), encoded)
    except (jwt.PyJWTError, ValueError, KeyError, TypeError) as error:
        problem = "is not a join token of `trunkline mesh token`; copy all of it"
        raise ConfigurationError("the token", problem) from error


@dataclass(frozen=True, slots=True)
class TokenUse:
    """A token that is valid now, as far as its content says."""

    token_id: str
    identity: Identity
    """The identity that it gives."""
    uses: int
    """The number of processes that may join by it."""
    ends_at: int
    """The time at which it expires, in seconds since the epoch."""


def verify_token(authority: CertificateAuthority, token: str) -> TokenUse:
    """Check the signature, the purpose and the time of a token.

    Raises:
        UnauthenticatedError: the token is another mesh's, or it has expired.
    """
    try:
        if len(token) > _LIMIT_CHARS:
            raise ValueError("it is too long")
        claims = _decode(authority, token)
        if jwt.get_unverified_header(token).get("typ") != _TYPE:
            raise ValueError("it has another purpose")
        identity = Identity.parse(claims["sub"])
        return TokenUse(claims["jti"], identity, claims["uses"], claims["exp"])
    except (jwt.PyJWTError, ValueError) as error:
        raise UnauthenticatedError("the join token is not valid here") from error


def _decode(authority: CertificateAuthority, token: str) -> dict[str, Any]:
    """Return the claims of a token that a root of the mesh signed, the current or another one.

    Raises:
        jwt.PyJWTError: no key has signed it, or the token has expired.
    """
    problem: jwt.PyJWTError = jwt.InvalidSignatureError()
    for root in authority.roots:
        key = root.public_key()
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key if isinstance(key, ec.EllipticCurvePublicKey) else "",
                algorithms=[_ALGORITHM],
                issuer=authority.mesh,
                options={"require": list(_CLAIMS)},
            )
        except jwt.InvalidSignatureError as error:
            problem = error
        else:
            return claims
    raise problem
