"""Issuers of tokens, and API keys in files, for tests."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from trunkline.settings import ScopeSettings, Settings
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys

ISSUER = "https://issuer.example"
AUDIENCE = "mesh"

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class SigningKey:
    """A key with an id and an algorithm."""

    def __init__(self, key_id: str, algorithm: str = "ES256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.private: PrivateKey
        if algorithm == "ES256":
            self.private = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(65537, 2048)

    def pem(self) -> bytes:
        """The private key."""
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def jwk(self) -> dict[str, Any]:
        """The public key."""
        public = self.private.public_key()
        text: str
        if isinstance(public, rsa.RSAPublicKey):
            text = RSAAlgorithm.to_jwk(public)
        elif isinstance(public, ec.EllipticCurvePublicKey):
            text = ECAlgorithm.to_jwk(public)
        else:
            text = OKPAlgorithm.to_jwk(public)
        return {**json.loads(text), "kid": self.key_id, "use": "sig"}

    def token(
        self, claims: Mapping[str, Any] | None = None, *, named: bool = True, **headers: Any
    ) -> str:
        """A token for a minute. `claims` replace the default claims; None removes one."""
        now = int(datetime.now(UTC).timestamp())
        all_claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ann",
            "iat": now,
            "exp": now + 60,
            **(claims or {}),
        }
        payload = {name: value for name, value in all_claims.items() if value is not None}
        head = {"kid": self.key_id, **headers} if named else headers
        return jwt.encode(payload, self.private, algorithm=self.algorithm, headers=head)


def key_set(*keys: SigningKey) -> bytes:
    """Return the JWKS of these keys."""
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


def token_settings(
    keys: str | Path, *, scopes: Mapping[str, ScopeSettings] | None = None, **settings: Any
) -> dict[str, Any]:
    """Return the settings that accept the tokens of the issuer; others are named without `jwt_`."""
    settings = {"keys": str(keys), "issuer": ISSUER, "audience": AUDIENCE, **settings}
    return {f"jwt_{name}": value for name, value in settings.items()} | {"scopes": scopes or {}}


def jwt_settings(keys: str | Path, **settings: Any) -> Settings:
    """Return settings of which only the ones of `token_settings` are set."""
    return Settings(**token_settings(keys, **settings))


def write_api_keys(path: Path, keys: Sequence[tuple[str, str, str]]) -> Path:
    """Write a file of keys: (name, account, key)."""
    save_keys(path, [ApiKey(name, account, hash_key(key)) for name, account, key in keys])
    return path
