"""Tests of card signatures: own ones, those of the reference SDK, and forged ones."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_agent_card_signer,
    create_signature_verifier,
)

from harness.remote.token_issuer import SigningKey, key_set
from trunkline.a2a_wire.card_json import merged_card_json
from trunkline.a2a_wire.card_signatures import (
    AS_SENT,
    PRUNED,
    SPECIFIED,
    CardSigner,
    InvalidSignatureError,
    parse_trusted_keys,
    verify_card,
)
from trunkline.core.json_values import message_to_dict, parse_dict
from trunkline.errors import ConfigurationError
from trunkline.v1 import agent_card_pb2, security_scheme_pb2

ALGORITHMS = ("ES256", "EdDSA", "RS256")
KEYS = {algorithm: SigningKey("main", algorithm) for algorithm in ALGORITHMS}
UNTRUSTED_KEY = SigningKey("main")


def plain_card(**fields: Any) -> agent_card_pb2.AgentCard:
    card = agent_card_pb2.AgentCard(
        name="echo",
        description="Speaks é.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[agent_card_pb2.AgentSkill(id="s", name="S", description="d", tags=["t"])],
        **fields,
    )
    for version in ("1.0", "0.3"):
        card.supported_interfaces.add(
            url="http://h/", protocol_binding="JSONRPC", protocol_version=version
        )
    card.capabilities.streaming = True
    return card


def secured_card() -> agent_card_pb2.AgentCard:
    """Return a card whose forms differ: its security requirement has no scopes."""
    requirement = security_scheme_pb2.SecurityRequirement(
        schemes={"bearer": security_scheme_pb2.StringList()}
    )
    card = plain_card(security_requirements=[requirement])
    card.security_schemes["bearer"].http_auth_security_scheme.scheme = "Bearer"
    return card


def make_signer(key: SigningKey, folder: Path, key_id: str = "main") -> CardSigner:
    path = folder / "card.pem"
    path.touch(mode=0o600)
    path.write_bytes(key.pem())
    return CardSigner(path, key_id)


def to_json(card: agent_card_pb2.AgentCard) -> bytes:
    return json.dumps(merged_card_json(card)).encode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signed_card_verifies_by_its_key_in_either_form(tmp_path: Path, algorithm: str) -> None:
    key = KEYS[algorithm]
    card = plain_card()
    signer = make_signer(key, tmp_path)
    signer.sign(card, base_url="http://h")
    assert len(card.signatures) == 1
    for trusted in (
        parse_trusted_keys(key.public_pem()),
        parse_trusted_keys(key_set(key)),
        parse_trusted_keys(json.dumps(signer.public_keys).encode()),
    ):
        verified = verify_card(to_json(card), trusted)
        assert (verified.key_id, verified.algorithm, verified.form) == (
            "main",
            algorithm,
            SPECIFIED,
        )


def test_the_header_has_the_fields_that_a2a_requires(tmp_path: Path) -> None:
    card = plain_card()
    make_signer(KEYS["ES256"], tmp_path).sign(card, base_url="https://h/base")
    header = jwt.get_unverified_header(f"{card.signatures[0].protected}.e30.eA")
    assert header == {
        "alg": "ES256",
        "kid": "main",
        "typ": "JOSE",
        "jku": "https://h/base/.well-known/jwks.json",
    }


def test_a_key_without_an_id_is_named_by_its_thumbprint(tmp_path: Path) -> None:
    signer = make_signer(KEYS["EdDSA"], tmp_path, key_id="")
    jwk = KEYS["EdDSA"].jwk()
    text = json.dumps({name: jwk[name] for name in ("crv", "kty", "x")}, separators=(",", ":"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
    assert signer.key_id == digest.decode()


@pytest.mark.parametrize("make_card", [plain_card, secured_card])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_reference_sdk_accepts_our_signature(
    tmp_path: Path, algorithm: str, make_card: Any
) -> None:
    card = make_card()
    make_signer(KEYS[algorithm], tmp_path).sign(card, base_url="http://h")
    verify = create_signature_verifier(
        lambda kid, jku: jwt.PyJWK(KEYS[algorithm].jwk()), [algorithm]
    )
    received = parse_agent_card(json.loads(to_json(card)))
    verify(received)
    received.description = "Does something else."
    with pytest.raises(InvalidSignaturesError):
        verify(received)


@pytest.mark.parametrize(("make_card", "form"), [(plain_card, SPECIFIED), (secured_card, PRUNED)])
def test_the_reference_sdks_signature_is_accepted(make_card: Any, form: str) -> None:
    key = KEYS["ES256"]
    sdk_card = parse_dict(message_to_dict(make_card()), AgentCard())
    header: Any = {"kid": "main", "alg": "ES256", "jku": None, "typ": "JOSE"}
    create_agent_card_signer(key.private, header)(sdk_card)  # type: ignore[arg-type]
    text = json.dumps(message_to_dict(sdk_card)).encode()
    assert verify_card(text, parse_trusted_keys(key_set(key))).form == form


def test_a_signature_of_the_sent_form_is_accepted() -> None:
    key = KEYS["ES256"]
    text = b'{"capabilities":{},"name":"echo","url":"http://old"}'
    compact = jwt.PyJWS().encode(text, key.private, algorithm="ES256", headers={"kid": "main"})
    protected, _, signature = compact.split(".")
    card = {**json.loads(text), "signatures": [{"protected": protected, "signature": signature}]}
    assert verify_card(json.dumps(card).encode(), parse_trusted_keys(key_set(key))).form == AS_SENT


def test_a_card_is_signed_again_only_when_it_has_changed(tmp_path: Path) -> None:
    signer = make_signer(KEYS["ES256"], tmp_path)
    first, same, other = plain_card(), plain_card(), plain_card()
    other.description = "Does something else."
    for card in (first, same, other):
        signer.sign(card, base_url="http://h")
    # ECDSA signatures are random, so equal ones come from the cache.
    assert first.signatures == same.signatures
    assert first.signatures != other.signatures
    assert verify_card(to_json(other), parse_trusted_keys(key_set(KEYS["ES256"]))).form == SPECIFIED


def encode(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def make_forgeries() -> dict[str, tuple[str, str]]:
    """Return forged signatures by the name of the attack."""
    key = KEYS["RS256"]
    head = encode({"alg": "HS256", "kid": "main"})
    form = merged_card_json(plain_card())
    mac = hmac.new(key.public_pem(), f"{head}.{encode(form)}".encode(), hashlib.sha256)
    hs256 = base64.urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()
    valid_header = encode({"alg": "RS256", "kid": "main"})
    return {
        "nothing": ("", ""),
        "no header": ("e30", "eA"),
        "not base64": ("%%%", "%%%"),
        "not JSON": ("eA", "eA"),
        "a list": (encode([]), "eA"),
        "none": (encode({"alg": "none", "kid": "main"}), ""),
        "HMAC by the public key": (head, hs256),
        "another algorithm": (encode({"alg": "ES256", "kid": "main"}), "eA" * 43),
        "a list of algorithms": (encode({"alg": ["RS256"], "kid": "main"}), "eA"),
        "no kid": (encode({"alg": "RS256"}), "eA"),
        "type": (encode({"alg": "RS256", "kid": "main", "typ": 7}), "eA"),
        "critical": (encode({"alg": "RS256", "kid": "main", "crit": ["b64"], "b64": False}), "eA"),
        "empty": (valid_header, ""),
        "random": (valid_header, "eA" * 171),
    }


@pytest.mark.parametrize("name", make_forgeries())
def test_a_forged_signature_is_refused(name: str) -> None:
    card = plain_card()
    protected, signature = make_forgeries()[name]
    card.signatures.add(protected=protected, signature=signature)
    for trusted in (key_set(KEYS["RS256"]), KEYS["RS256"].public_pem()):
        with pytest.raises(InvalidSignatureError):
            verify_card(to_json(card), parse_trusted_keys(trusted))


def test_a_changed_card_or_an_untrusted_signature_is_refused(tmp_path: Path) -> None:
    trusted = parse_trusted_keys(key_set(KEYS["ES256"]))
    with pytest.raises(InvalidSignatureError, match="isn't signed"):
        verify_card(to_json(plain_card()), trusted)
    changed = plain_card()
    make_signer(KEYS["ES256"], tmp_path).sign(changed, base_url="http://h")
    changed.supported_interfaces[0].url = "http://evil/"
    with pytest.raises(InvalidSignatureError, match="doesn't fit"):
        verify_card(to_json(changed), trusted)
    untrusted = plain_card()
    make_signer(UNTRUSTED_KEY, tmp_path).sign(untrusted, base_url="http://h")
    with pytest.raises(InvalidSignatureError, match="doesn't fit"):
        verify_card(to_json(untrusted), trusted)
    unknown = plain_card()
    make_signer(UNTRUSTED_KEY, tmp_path, "other").sign(unknown, base_url="http://h")
    with pytest.raises(InvalidSignatureError, match="isn't trusted"):
        verify_card(to_json(unknown), trusted)


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN NOTHING-----\n", None])
def test_a_key_that_cannot_sign_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "card.pem"
    if content is not None:
        path.touch(mode=0o600)
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"card\.pem"):
        CardSigner(path)
