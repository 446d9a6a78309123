"""Verifies the signatures of a card by keys that are trusted."""

import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK, PyJWTError
from jwt.algorithms import get_default_algorithms
from jwt.utils import base64url_decode, base64url_encode

from trunkline.v1 import agent_card_pb2
from trunkline_bridge.inbound.access.key_sets import ALGORITHMS, read_key_set
from trunkline_bridge.inbound.cards.canonical import (
    AS_SENT,
    PRUNED,
    SPECIFIED,
    NoCanonicalFormError,
    form_as_sent,
    pruned_form,
    specified_form,
)
from trunkline_bridge.wire.card_json import read_card

_ALGORITHMS: Mapping[str, Any] = get_default_algorithms()


class UnverifiedError(Exception):
    """No signature of a card is good; the text says what is wrong with each."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key, by its id if it has one."""

    key_id: str | None
    jwk: dict[str, Any] | None
    public: Any = None
    """What PyJWT verifies with, if it isn't made of the JWK."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A signature that is good."""

    key_id: str
    algorithm: str
    form: str
    """Of the card, which the signature is over: specified, pruned or as sent."""


def trusted_keys(content: bytes) -> Sequence[TrustedKey]:
    """Return the keys of a JWKS, or the one of a PEM.

    Raises:
        ValueError: it is neither.
    """
    if content.lstrip().startswith(b"-----BEGIN"):
        try:
            return [TrustedKey(None, None, load_pem_public_key(content))]
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValueError("is no public key in PEM") from error
    return [TrustedKey(key.get("kid"), dict(key)) for key in read_key_set(content)]


def verify_card(text: bytes, keys: Sequence[TrustedKey]) -> Verified:
    """Return the first signature that is good.

    Raises:
        UnverifiedError: there is none.
        ValueError: it is no card.
    """
    card = read_card(text)
    if not card.signatures:
        raise UnverifiedError("it isn't signed")
    forms = dict(_forms(card, text))
    problems = []
    for place, signature in enumerate(card.signatures, 1):
        try:
            return _verify(signature, forms, keys)
        except UnverifiedError as error:
            problems.append(f"signature {place} {error}")
    raise UnverifiedError("; ".join(problems))


def _forms(card: agent_card_pb2.AgentCard, text: bytes) -> Iterator[tuple[str, bytes]]:
    makers: Mapping[str, Callable[[], bytes]] = {
        SPECIFIED: partial(specified_form, card),
        PRUNED: partial(pruned_form, card),
        AS_SENT: partial(form_as_sent, text),
    }
    for name, make in makers.items():
        # Others may exist where one doesn't.
        with suppress(NoCanonicalFormError):
            yield name, make()


def _verify(
    signature: agent_card_pb2.AgentCardSignature,
    forms: dict[str, bytes],
    keys: Sequence[TrustedKey],
) -> Verified:
    header, value = _read(signature)
    # What a header names (jwk, jku, x5u) is nobody's word but the signer's own: never followed.
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise UnverifiedError("has an algorithm that isn't allowed")
    if not isinstance(key_id, str) or "crit" in header:
        raise UnverifiedError("has a header that isn't allowed")
    candidates = [key for key in keys if key.key_id in (None, key_id)]
    if not candidates:
        raise UnverifiedError(f"is by a key that isn't trusted ({key_id[:100]!r})")
    for name, form in forms.items():
        signed = signature.protected.encode() + b"." + base64url_encode(form)
        if any(_is_good(key, algorithm, signed, value) for key in candidates):
            return Verified(key_id, algorithm, name)
    raise UnverifiedError("doesn't fit the card")


def _read(signature: agent_card_pb2.AgentCardSignature) -> tuple[dict[str, Any], bytes]:
    try:
        header = json.loads(base64url_decode(signature.protected))
        value = base64url_decode(signature.signature)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise UnverifiedError("can't be read") from error
    if not isinstance(header, dict):
        raise UnverifiedError("can't be read")
    return header, value


def _is_good(key: TrustedKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    try:
        if key.jwk is not None:
            if key.jwk.get("alg", algorithm) != algorithm:
                return False
            public = PyJWK(key.jwk, algorithm).key
        else:
            public = key.public
        checks = _ALGORITHMS[algorithm]
        # It also says whether the key is of the algorithm's kind.
        return bool(checks.verify(signed, checks.prepare_key(public), signature))
    except (PyJWTError, TypeError, ValueError):
        return False
