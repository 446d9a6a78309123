"""Signs cards (A2A v1.0, 8.4; JWS with a detached payload, RFC 7515)."""

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from trunkline.errors import ConfigurationError
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.inbound.cards.canonical import (
    NoCanonicalFormError,
    pruned_form,
    specified_form,
)
from trunkline_bridge.inbound.cards.names import KEYS_PATH
from trunkline_bridge.wire.json_values import Json

logger = logging.getLogger(__name__)

_Key: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
# What a thumbprint is of (RFC 7638, 3.2; RFC 8037, 2).
_THUMBED = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
# Agents times the forms of their cards, and then some.
_KNOWN = 1024
_LEAST_RSA_BITS = 2048


class CardSigner:
    """Signs with one key. A card is signed once, until it changes."""

    def __init__(self, path: Path, key_id: str = "") -> None:
        """Read the private key, in PEM. ConfigurationError: it can't be used."""
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigurationError(str(path), "is no private key in PEM, unencrypted") from error
        self._key, self._algorithm, jwk = _describe(key, path)
        self.key_id = key_id or _thumbprint(jwk)
        self._jwk = {**jwk, "kid": self.key_id, "use": "sig", "alg": self._algorithm}
        self._signed: OrderedDict[bytes, Sequence[str]] = OrderedDict()

    @property
    def public_keys(self) -> Json:
        """The public key, as a JWKS."""
        return {"keys": [self._jwk]}

    def sign(self, card: agent_card_pb2.AgentCard, *, base_url: str) -> None:
        """Add a signature to a card, or two where clients differ on what is signed."""
        header = {"kid": self.key_id, "typ": "JOSE", "jku": base_url + KEYS_PATH}
        try:
            forms = {specified_form(card), pruned_form(card)}
        except NoCanonicalFormError as error:
            logger.warning("card.unsigned", extra={"agent": card.name, "problem": str(error)})
            return
        # In an order that doesn't change: the longer form is the specification's.
        for form in sorted(forms, key=len, reverse=True):
            protected, signature = self._signature(form, header)
            card.signatures.add(protected=protected, signature=signature)

    def _signature(self, form: bytes, header: dict[str, Any]) -> Sequence[str]:
        name = hashlib.sha256(form).digest()
        if name not in self._signed:
            compact = PyJWS().encode(form, self._key, algorithm=self._algorithm, headers=header)
            protected, _, signature = compact.split(".")
            self._signed[name] = (protected, signature)
        self._signed.move_to_end(name)
        while len(self._signed) > _KNOWN:
            self._signed.popitem(last=False)
        return self._signed[name]


def _describe(key: object, path: Path) -> tuple[_Key, str, Json]:
    """Return a private key that signs, its algorithm, and the public one."""
    jwk: Json
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        jwk = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return key, _CURVES[key.curve.name], jwk
    if isinstance(key, ed25519.Ed25519PrivateKey):
        jwk = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return key, "EdDSA", jwk
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _LEAST_RSA_BITS:
        jwk = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return key, "RS256", jwk
    problem = "signs nothing here; make one of P-256, Ed25519 or RSA with 2048 bits"
    raise ConfigurationError(str(path), problem)


def _thumbprint(jwk: Json) -> str:
    members = {name: jwk[name] for name in _THUMBED[jwk["kty"]]}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return base64url_encode(hashlib.sha256(text.encode("ascii")).digest()).decode("ascii")
