"""Signed statements of users: JWTs (RFC 7519) that name the user whom a call is for.

It imports cryptography, which takes a fifth of a second: load it where a statement is signed or
verified for the first time.
"""

import base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from trunkline.identity.names import SIGNERS, Identity
from trunkline.users import STATEMENT_CHARS, User

LIFETIME_S: Final = 24 * 3600
"""The lifetime of a statement: the longest turn of a task that calls other agents."""
# Clocks of machines differ.
_TOLERANCE_S: Final = 300
_TYPE: Final = "trunkline-user+jwt"
_CLAIMS: Final = ("iss", "aud", "sub", "account", "iat", "exp")
# The only value of the claim `scope`; without it, the user is not limited.
_READ_ONLY: Final = "read"
_MAX_CHAIN: Final = 4


def sign_statement(user: User, *, certificate_pem: bytes, key_pem: bytes, issued_at: int) -> str:
    """Return a statement that names a user, signed with the key of a certificate.

    Raises:
        ValueError: the key is of another kind, or the statement is too long.
    """
    chain = x509.load_pem_x509_certificates(certificate_pem)[:_MAX_CHAIN]
    key = serialization.load_pem_private_key(key_pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the certificate's key is neither a P-256 nor an RSA key")
    uri = _read_uri(chain[0])
    claims: dict[str, Any] = {
        "iss": uri,
        "aud": uri.removeprefix("spiffe://").partition("/")[0],
        "sub": user.name,
        "account": user.account,
        "iat": issued_at,
        "exp": issued_at + LIFETIME_S,
    }
    if user.is_read_only:
        claims["scope"] = _READ_ONLY
    if user.approved:
        claims["approved"] = sorted(user.approved)
    headers = {"typ": _TYPE, "x5c": [_encode(certificate) for certificate in chain]}
    algorithm = _algorithm(key.public_key())
    token = jwt.encode(claims, key, algorithm=algorithm, headers=headers)
    if len(token) > STATEMENT_CHARS:
        raise ValueError("the statement is too long")
    return token


def verify_statement(
    token: str, *, mesh: str, roots_pem: bytes, identify: Callable[[str], Identity]
) -> tuple[User, Identity, int]:
    """Return the user that a statement names, its signer, and the Unix time of its end.

    `identify` returns the identity of a SPIFFE id, or raises ValueError.

    The chain of certificates is checked as of the time of the signature, because a certificate
    may be shorter-lived than the work that began while it was valid.

    Raises:
        ValueError: the statement is malformed, of another mesh, not signed by a bridge or a member,
            or not valid now.
    """
    if len(token) > STATEMENT_CHARS:
        raise ValueError("it is too long")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != _TYPE:
            raise ValueError("it has another purpose")
        chain = _decode_chain(header.get("x5c"))
        key = chain[0].public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
            raise ValueError("its key is neither a P-256 nor an RSA key")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[_algorithm(key)],
            audience=mesh,
            leeway=_TOLERANCE_S,
            options={"require": list(_CLAIMS), "enforce_minimum_key_length": True},
        )
    except jwt.PyJWTError as error:
        raise ValueError(str(error).lower()) from error
    issued_at, ends_at = _check_times(claims)
    uri = _read_uri(chain[0])
    signer = identify(uri)
    if claims["iss"] != uri or signer.mesh != mesh:
        raise ValueError("its signer is of another mesh")
    if signer.role not in SIGNERS:
        raise ValueError("its signer is neither a bridge nor a member")
    _check_chain(chain, roots_pem, issued_at)
    return _build_user(claims, token), signer, ends_at


def _check_times(claims: dict[str, Any]) -> tuple[int, int]:
    issued_at, ends_at = claims["iat"], claims["exp"]
    if type(issued_at) is not int or type(ends_at) is not int:
        raise ValueError("its times are not whole numbers")
    if not 0 < ends_at - issued_at <= LIFETIME_S:
        raise ValueError("it is valid for too long")
    return issued_at, ends_at


def _check_chain(chain: Sequence[x509.Certificate], roots_pem: bytes, issued_at: int) -> None:
    store = Store(x509.load_pem_x509_certificates(roots_pem))
    policy = PolicyBuilder().store(store).time(datetime.fromtimestamp(issued_at, UTC))
    try:
        policy.build_client_verifier().verify(chain[0], list(chain[1:]))
    except VerificationError as error:
        raise ValueError("no root of the mesh has signed its certificate") from error


def _build_user(claims: dict[str, Any], token: str) -> User:
    account, name, scope = claims["account"], claims["sub"], claims.get("scope")
    approved = claims.get("approved", [])
    if not (
        isinstance(account, str)
        and account
        and isinstance(name, str)
        and isinstance(approved, list)
        and all(isinstance(digest, str) for digest in approved)
    ):
        raise ValueError("a claim has another type")
    # An unknown limit must not become unlimited use.
    if scope not in (None, _READ_ONLY):
        raise ValueError("it has an unknown scope")
    return User(account, name, scope == _READ_ONLY, frozenset(approved), token)


def _read_uri(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise ValueError("its certificate names no identity") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise ValueError("its certificate names no identity")
    return uris[0]


def _algorithm(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return "RS256"
    if not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the certificate's key is neither a P-256 nor an RSA key")
    return "ES256"


def _encode(certificate: x509.Certificate) -> str:
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()


def _decode_chain(chain: object) -> list[x509.Certificate]:
    if not isinstance(chain, list) or not 0 < len(chain) <= _MAX_CHAIN:
        raise ValueError("it has no chain of certificates")
    return [x509.load_der_x509_certificate(base64.b64decode(each, validate=True)) for each in chain]
