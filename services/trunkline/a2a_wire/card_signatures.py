"""Signs and verifies cards (A2A v1.0, 8.4; detached JWS, RFC 7515; JCS, RFC 8785).

A signature covers a canonical form of the card. The specification defines one form, `a2a-sdk` 1.x
omits more members, and some implementations sign the JSON that they send. `verify_card` accepts all
three.
"""

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import rfc8785
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from google.protobuf.message import Message
from jwt import PyJWK, PyJWS, PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from trunkline.a2a_wire.card_json import REQUIRED_CARD_FIELDS, parse_card
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.key_sets import SIGNATURE_ALGORITHMS, parse_key_set
from trunkline.a2a_wire.protocol import KEYS_PATH
from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import message_to_dict, struct_json
from trunkline.core.private_files import read_private_file
from trunkline.errors import ConfigurationError
from trunkline.v1 import agent_card_pb2, json_pb2

logger = logging.getLogger(__name__)

SPECIFIED, PRUNED, AS_SENT = "specified", "pruned", "as sent"

_NONE: frozenset[str] = frozenset()
# Larger integers are not exact in all JSON parsers.
_MAX_EXACT_INTEGER = 2**53 - 1
# Cards have a dozen levels. The parameters of extensions may have more.
_MAX_DEPTH = 100


class NoCanonicalFormError(ValueError):
    """A card has no canonical form: it is nested too deeply, or has a number that JSON lacks."""


def specified_form(card: agent_card_pb2.AgentCard) -> bytes:
    """Return the canonical form of the specification (A2A v1.0, 8.4).

    It has the required fields, optional fields that are set, and other fields unless they have
    their default value.
    """
    return _canonical(lambda: _message_fields(card, omit="signatures"))


def pruned_form(card: agent_card_pb2.AgentCard) -> bytes:
    """Return the canonical form of `a2a-sdk` 1.x, without empty members, even required ones."""

    def prune() -> JsonValue:
        value = message_to_dict(card)
        value.pop("signatures", None)
        return _prune(value)

    return _canonical(prune)


def sent_form(text: str | bytes) -> bytes:
    """Return the canonical form of a card's JSON, with members that v1.0 does not define."""

    def read() -> Json:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("is no card")
        return {name: member for name, member in value.items() if name != "signatures"}

    return _canonical(read)


def _canonical(build: Callable[[], Any]) -> bytes:
    try:
        return rfc8785.dumps(_round_large_integers(build(), _MAX_DEPTH))
    except (ValueError, RecursionError) as error:
        raise NoCanonicalFormError(str(error) or "it is nested too deeply") from error


def _message_fields(message: Message, *, omit: str = "") -> Json:
    required = REQUIRED_CARD_FIELDS.get(message.DESCRIPTOR.name, _NONE)
    members: Json = {}
    for field in message.DESCRIPTOR.fields:
        if field.name == omit:
            continue
        if field.name in required or _is_set(message, field):
            members[field.json_name] = _field_value(message, field)
    return members


def _is_set(message: Message, field: Any) -> bool:  # noqa: ANN401  descriptors have two types
    if field.has_presence:
        return message.HasField(field.name)
    return bool(getattr(message, field.name))


def _field_value(message: Message, field: JsonValue) -> JsonValue:
    value = getattr(message, field.name)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return {name: _to_json(value[name]) for name in value}
    if field.is_repeated:
        return [_to_json(item) for item in value]
    return _to_json(value)


def _to_json(value: Any) -> Any:  # noqa: ANN401  what a map holds may be a text
    if isinstance(value, json_pb2.Struct):
        return struct_json(value)
    return _message_fields(value) if isinstance(value, Message) else value


def _prune(value: JsonValue) -> JsonValue:
    pairs: Iterator[tuple[Any, Any]]
    if isinstance(value, dict):
        pairs = ((name, _prune(member)) for name, member in value.items())
        return {name: member for name, member in pairs if member is not None} or None
    if isinstance(value, list):
        return [item for item in map(_prune, value) if item is not None] or None
    return None if value == "" else value


def _round_large_integers(value: JsonValue, depth: int) -> JsonValue:
    """Return a value whose large integers are doubles, as JSON parsers read them."""
    if not depth:
        raise NoCanonicalFormError("it is nested too deeply")
    if isinstance(value, dict):
        return {name: _round_large_integers(member, depth - 1) for name, member in value.items()}
    if isinstance(value, list):
        return [_round_large_integers(item, depth - 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_EXACT_INTEGER:
        return float(value)
    return value


_PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
# The members that a thumbprint covers (RFC 7638, 3.2; RFC 8037, 2).
_THUMBPRINT_MEMBERS = {
    "EC": ("crv", "kty", "x", "y"),
    "RSA": ("e", "kty", "n"),
    "OKP": ("crv", "kty", "x"),
}
# More than the number of agents times the forms of a card.
_MAX_CACHED_SIGNATURES = 1024
_MIN_RSA_BITS = 2048


class CardSigner:
    """Signs cards with one key. An unchanged card is signed only once."""

    def __init__(self, path: Path, key_id: str = "") -> None:
        """Load a private key in PEM.

        ConfigurationError: it is unusable, or other users may read it.
        """
        try:
            key = load_pem_private_key(read_private_file(path), password=None)
        except OSError as error:
            raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigurationError(str(path), "is no unencrypted private key in PEM") from error
        self._key, self._algorithm, jwk = _describe_key(key, path)
        self.key_id = key_id or _thumbprint(jwk)
        self._jwk = {**jwk, "kid": self.key_id, "use": "sig", "alg": self._algorithm}
        self._signed: OrderedDict[bytes, Sequence[str]] = OrderedDict()

    @property
    def public_keys(self) -> Json:
        """The public key, as a JWKS."""
        return {"keys": [self._jwk]}

    def sign(self, card: agent_card_pb2.AgentCard, *, base_url: str) -> None:
        """Add a signature for each distinct canonical form that clients verify: one or two.

        A card without a canonical form stays unsigned, and a warning is logged.
        """
        header = {"kid": self.key_id, "typ": "JOSE", "jku": base_url + KEYS_PATH}
        try:
            forms = {specified_form(card), pruned_form(card)}
        except NoCanonicalFormError as error:
            logger.warning("card.unsigned", extra={"agent": card.name, "problem": str(error)})
            return
        # The form of the specification is the longer one, so its signature comes first.
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
        while len(self._signed) > _MAX_CACHED_SIGNATURES:
            self._signed.popitem(last=False)
        return self._signed[name]


def _describe_key(key: object, path: Path) -> tuple[_PrivateKey, str, Json]:
    """Return a private key, its algorithm and its public JWK. ConfigurationError: unsuitable."""
    jwk: Json
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        jwk = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return key, _CURVES[key.curve.name], jwk
    if isinstance(key, ed25519.Ed25519PrivateKey):
        jwk = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return key, "EdDSA", jwk
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _MIN_RSA_BITS:
        jwk = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return key, "RS256", jwk
    problem = "cannot sign cards; use a key of P-256, Ed25519 or RSA with 2048 bits"
    raise ConfigurationError(str(path), problem)


def _thumbprint(jwk: Json) -> str:
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return base64url_encode(hashlib.sha256(text.encode("ascii")).digest()).decode("ascii")


class InvalidSignatureError(Exception):
    """No signature of a card is valid. The text has a reason for each."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A trusted public key."""

    key_id: str | None
    """The key id. With None, the key is tried for any id."""
    jwk: dict[str, Any] | None
    public: Any = None
    """A public key of `cryptography`, if there is no JWK."""


@dataclass(frozen=True, slots=True)
class VerifiedSignature:
    """A valid signature."""

    key_id: str
    algorithm: str
    form: str
    """The form of the card that the signature covers: specified, pruned or as sent."""


def parse_trusted_keys(content: bytes) -> Sequence[TrustedKey]:
    """Return the keys of a JWKS, or the key of a PEM.

    Raises:
        ValueError: the content is neither.
    """
    if content.lstrip().startswith(b"-----BEGIN"):
        try:
            return [TrustedKey(None, None, load_pem_public_key(content))]
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValueError("is no public key in PEM") from error
    return [TrustedKey(key.get("kid"), dict(key)) for key in parse_key_set(content)]


def verify_card(text: bytes, keys: Sequence[TrustedKey]) -> VerifiedSignature:
    """Return the first valid signature of a card.

    Raises:
        InvalidSignatureError: no signature is valid.
        ValueError: the text is not a card.
    """
    card = parse_card(text)
    if not card.signatures:
        raise InvalidSignatureError("it isn't signed")
    forms = dict(_canonical_forms(card, text))
    problems = []
    for number, signature in enumerate(card.signatures, 1):
        try:
            return _verify_signature(signature, forms, keys)
        except InvalidSignatureError as error:
            problems.append(f"signature {number} {error}")
    raise InvalidSignatureError("; ".join(problems))


def _canonical_forms(card: agent_card_pb2.AgentCard, text: bytes) -> Iterator[tuple[str, bytes]]:
    builders: Mapping[str, Callable[[], bytes]] = {
        SPECIFIED: partial(specified_form, card),
        PRUNED: partial(pruned_form, card),
        AS_SENT: partial(sent_form, text),
    }
    for name, build in builders.items():
        # A card may lack some of the forms.
        with suppress(NoCanonicalFormError):
            yield name, build()


def _verify_signature(
    signature: agent_card_pb2.AgentCardSignature,
    forms: dict[str, bytes],
    keys: Sequence[TrustedKey],
) -> VerifiedSignature:
    try:
        header = PyJWS().get_unverified_header(_compact_jws(signature, b""))
    except PyJWTError as error:
        raise InvalidSignatureError("can't be read") from error
    # Never follow the keys or URLs in the header (jwk, jku, x5u): the signer chose them.
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in SIGNATURE_ALGORITHMS:
        raise InvalidSignatureError("has an algorithm that isn't allowed")
    has_type = isinstance(header.get("typ", ""), str)
    if not isinstance(key_id, str) or not has_type or "crit" in header:
        raise InvalidSignatureError("has a header that isn't allowed")
    candidates = [key for key in keys if key.key_id in (None, key_id)]
    if not candidates:
        raise InvalidSignatureError(f"is by a key that isn't trusted ({key_id[:100]!r})")
    for name, form in forms.items():
        token = _compact_jws(signature, form)
        if any(_is_valid(token, algorithm, key) for key in candidates):
            return VerifiedSignature(key_id, algorithm, name)
    raise InvalidSignatureError("doesn't fit the card")


def _compact_jws(signature: agent_card_pb2.AgentCardSignature, payload: bytes) -> str:
    """Return a detached signature and its payload as a compact JWS (RFC 7515, 3.1 and F)."""
    return f"{signature.protected}.{base64url_encode(payload).decode()}.{signature.signature}"


def _is_valid(token: str, algorithm: str, key: TrustedKey) -> bool:
    try:
        if key.jwk is None:
            PyJWS().decode(token, key.public, algorithms=[algorithm])
        elif key.jwk.get("alg", algorithm) == algorithm:
            PyJWS().decode(token, PyJWK(key.jwk, algorithm), algorithms=[algorithm])
        else:
            return False
    # A key of the wrong type for the algorithm is a TypeError.
    except (PyJWTError, TypeError, ValueError):
        return False
    return True
