"""Valid tokens, and every kind of invalid one."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.remote.token_issuer import SigningKey, key_set, token_settings
from trunkline_bridge.edge.jwt_tokens import InvalidTokenError, TokenVerifier

KEYS = {algorithm: SigningKey(algorithm.lower(), algorithm) for algorithm in ("ES256", "RS256")}
GOOD = KEYS["ES256"]
STRANGER = SigningKey("es256")


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(*KEYS.values()))
    return path


def at(seconds: int) -> int:
    """Return a time that many seconds from now."""
    return int(datetime.now(UTC).timestamp()) + seconds


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes = b"") -> str:
    """Return a token with any header, signed by HMAC or not at all."""
    pieces = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)
    ]
    signing_input = b".".join(pieces)
    signature = hmac.new(secret, signing_input, hashlib.sha256).digest() if secret else b""
    return b".".join([signing_input, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


CLAIMS = {"iss": "https://issuer.example", "aud": "mesh", "sub": "ann", "exp": at(3600)}


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_token_names_its_account(jwks: Path, algorithm: str) -> None:
    identity = await TokenVerifier(token_settings(jwks)).verify(KEYS[algorithm].token())
    assert (identity.account, identity.name) == ("ann", "ann")
    assert identity.is_authenticated


async def test_any_claim_may_name_the_account(jwks: Path) -> None:
    tokens = TokenVerifier(token_settings(jwks, account_claim="org"))
    identity = await tokens.verify(GOOD.token({"org": "acme"}))
    assert (identity.account, identity.name) == ("acme", "ann")


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": at(-60)}, "expired"),
        ({"exp": None}, "not valid"),
        ({"nbf": at(24 * 3600)}, "not valid yet"),
        ({"aud": "elsewhere"}, "another issuer or audience"),
        ({"aud": None}, "not valid"),
        ({"iss": "https://other.example"}, "another issuer or audience"),
        ({"sub": ""}, "are no caller and account"),
        ({"sub": "anonymous"}, "are no caller and account"),
        ({"sub": "a\nb"}, "are no caller and account"),
        ({"sub": None}, "are no caller and account"),
    ],
)
async def test_a_token_that_says_the_wrong_thing_is_refused(
    jwks: Path, claims: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidTokenError, match=problem):
        await TokenVerifier(token_settings(jwks)).verify(GOOD.token(claims))


async def test_the_issuers_clock_may_be_off_a_little(jwks: Path) -> None:
    late = GOOD.token({"exp": at(-10)})
    assert (await TokenVerifier(token_settings(jwks, leeway_s=30)).verify(late)).account == "ann"
    with pytest.raises(InvalidTokenError, match="expired"):
        await TokenVerifier(token_settings(jwks, leeway_s=0)).verify(late)


@pytest.mark.parametrize(
    "token",
    [
        forged({"alg": "none"}, CLAIMS),
        forged({"alg": "None", "kid": "es256"}, CLAIMS),
        # The public key is no secret: anyone can sign with it by HMAC.
        forged({"alg": "HS256", "kid": "rs256"}, CLAIMS, KEYS["RS256"].public_pem()),
        forged({"alg": "ES256", "kid": "es256"}, CLAIMS),
        forged({"alg": "RS256", "kid": "es256"}, CLAIMS),
        forged({"alg": "ES256", "kid": ["es256"]}, CLAIMS),
        forged({"alg": "ES256", "kid": {"a": 1}}, CLAIMS),
        forged({"alg": ["ES256"], "kid": "es256"}, CLAIMS),
        forged({"alg": "ES256", "kid": "es256", "jwk": STRANGER.jwk()}, CLAIMS),
        STRANGER.token(),
        STRANGER.token(jku="https://evil.example/keys", jwk=STRANGER.jwk()),
        GOOD.token(crit=["exp"]),
        GOOD.token()[:-4] + "AAAA",
        "..",
        "a.b.c",
        "é.é.é",
        f"{base64.urlsafe_b64encode(b'[' * 5000).decode()}.e30.e30",
        f"{base64.urlsafe_b64encode(b'[]').decode()}.e30.e30",
        GOOD.token({"more": "x" * 9000}),
    ],
)
async def test_a_forged_token_is_refused(jwks: Path, token: str) -> None:
    with pytest.raises(InvalidTokenError):
        await TokenVerifier(token_settings(jwks)).verify(token)


async def test_without_an_id_the_only_key_that_fits_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(GOOD))
    token = GOOD.token(named=False)
    assert (await TokenVerifier(token_settings(path)).verify(token)).account == "ann"
    path.write_bytes(key_set(GOOD, STRANGER))
    with pytest.raises(InvalidTokenError, match="unknown key"):
        await TokenVerifier(token_settings(path)).verify(token)
