"""Valid tokens are accepted, and every kind of invalid one is refused."""

import base64
import hashlib
import hmac
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.remote.token_issuer import SigningKey, jwt_settings, key_set
from trunkline.core.settings import ScopeSettings
from trunkline.errors import ConfigurationError
from trunkline_bridge.callers.jwt_tokens import InvalidTokenError, TokenVerifier

KEYS = {algorithm: SigningKey(algorithm.lower(), algorithm) for algorithm in ("ES256", "RS256")}
TRUSTED_KEY = KEYS["ES256"]
UNTRUSTED_KEY = SigningKey("es256")


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(*KEYS.values()))
    return path


def at(seconds: int) -> int:
    """Return the Unix time of a number of seconds from now."""
    return int(datetime.now(UTC).timestamp()) + seconds


def forge(header: dict[str, Any], claims: dict[str, Any], secret: bytes = b"") -> str:
    """Return a token with any header, signed by HMAC or not at all."""
    pieces = [
        base64.urlsafe_b64encode(json.dumps(segment).encode()).rstrip(b"=")
        for segment in (header, claims)
    ]
    signing_input = b".".join(pieces)
    signature = hmac.new(secret, signing_input, hashlib.sha256).digest() if secret else b""
    return b".".join([signing_input, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


CLAIMS = {"iss": "https://issuer.example", "aud": "mesh", "sub": "ann", "exp": at(3600)}


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_token_names_its_account(jwks: Path, algorithm: str) -> None:
    identity = await TokenVerifier(jwt_settings(jwks)).verify(KEYS[algorithm].token())
    assert (identity.account, identity.name) == ("jwt:ann", "ann")
    assert identity.is_authenticated


@pytest.mark.parametrize(
    ("claims", "allowed"),
    [
        ({"scope": "tasks:read other"}, {"GetTask"}),
        ({"scp": "tasks:read"}, {"GetTask"}),
        ({"scp": ["tasks:read", "tasks:write", 1]}, {"GetTask", "SendMessage"}),
        ({"scope": "tasks:write", "scp": []}, {"SendMessage"}),
        ({"scope": ["tasks:read"]}, {"GetTask"}),
        ({"scope": 1, "scp": {"tasks:read": True}}, set()),
        ({}, set()),
    ],
)
async def test_the_scopes_of_a_token_decide(
    jwks: Path, claims: dict[str, Any], allowed: set[str]
) -> None:
    scopes = {
        "tasks:read": ScopeSettings(methods=("read",)),
        "tasks:write": ScopeSettings(methods=("SendMessage",)),
    }
    tokens = TokenVerifier(jwt_settings(jwks, scopes=scopes))
    permissions = (await tokens.verify(TRUSTED_KEY.token(claims))).permissions
    assert {
        method
        for method in ("GetTask", "SendMessage", "CancelTask")
        if any(grant.allows("math", method) for grant in permissions.grants)
    } == allowed


@pytest.mark.parametrize(
    ("scopes", "problem"),
    [
        ({"a b": ScopeSettings()}, "no spaces"),
        ({"a": ScopeSettings(methods=("Send",))}, "is no method; there are: read, CancelTask"),
    ],
)
def test_an_invalid_scope_is_refused(
    jwks: Path, scopes: dict[str, ScopeSettings], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        TokenVerifier(jwt_settings(jwks, scopes=scopes))


async def test_an_expired_token_has_an_account_only_if_its_signature_is_right(jwks: Path) -> None:
    tokens = TokenVerifier(jwt_settings(jwks))
    stranger = SigningKey(TRUSTED_KEY.key_id)
    accounts = []
    for key in (TRUSTED_KEY, stranger):
        with pytest.raises(InvalidTokenError) as raised:
            await tokens.verify(key.token({"exp": at(-600)}))
        accounts.append(raised.value.account)
    assert accounts == ["jwt:ann", ""]


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
async def test_a_token_with_wrong_claims_is_refused(
    jwks: Path, claims: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidTokenError, match=problem):
        await TokenVerifier(jwt_settings(jwks)).verify(TRUSTED_KEY.token(claims))


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    ["4102444800", True, [4102444800], {}, math.inf, -math.inf, math.nan, 1e300, 2**70, -1.5],
    ids=str,
)
async def test_a_time_that_is_no_sensible_number_is_refused(
    jwks: Path, name: str, value: object
) -> None:
    token = TRUSTED_KEY.token({name: value})
    with pytest.raises(InvalidTokenError):
        await TokenVerifier(jwt_settings(jwks)).verify(token)


async def test_a_time_may_have_fractions(jwks: Path) -> None:
    token = TRUSTED_KEY.token({"exp": at(60) + 0.5, "nbf": at(-60) + 0.5})
    assert (await TokenVerifier(jwt_settings(jwks)).verify(token)).account == "jwt:ann"


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", None])
async def test_a_token_may_have_the_type_of_access_tokens(jwks: Path, typ: str | None) -> None:
    token = TRUSTED_KEY.token(typ=typ)
    assert (await TokenVerifier(jwt_settings(jwks)).verify(token)).account == "jwt:ann"


@pytest.mark.parametrize("typ", ["dpop+jwt", "logout+jwt", "JOSE", "JWT ", ["JWT"], {"a": 1}, 7])
async def test_a_token_of_another_type_is_refused(jwks: Path, typ: object) -> None:
    with pytest.raises(InvalidTokenError, match="the token is of another type"):
        await TokenVerifier(jwt_settings(jwks)).verify(TRUSTED_KEY.token(typ=typ))


async def test_a_small_clock_difference_is_tolerated(jwks: Path) -> None:
    expired_token = TRUSTED_KEY.token({"exp": at(-10)})
    assert (
        await TokenVerifier(jwt_settings(jwks, leeway_s=30)).verify(expired_token)
    ).account == "jwt:ann"
    with pytest.raises(InvalidTokenError, match="expired"):
        await TokenVerifier(jwt_settings(jwks, leeway_s=0)).verify(expired_token)


@pytest.mark.parametrize(
    "token",
    [
        forge({"alg": "none"}, CLAIMS),
        forge({"alg": "None", "kid": "es256"}, CLAIMS),
        # The public key is not secret: anybody can sign with it by HMAC.
        forge({"alg": "HS256", "kid": "rs256"}, CLAIMS, KEYS["RS256"].public_pem()),
        forge({"alg": "ES256", "kid": "es256"}, CLAIMS),
        forge({"alg": "RS256", "kid": "es256"}, CLAIMS),
        forge({"alg": "ES256", "kid": ["es256"]}, CLAIMS),
        forge({"alg": "ES256", "kid": {"a": 1}}, CLAIMS),
        forge({"alg": ["ES256"], "kid": "es256"}, CLAIMS),
        forge({"alg": "ES256", "kid": "es256", "jwk": UNTRUSTED_KEY.jwk()}, CLAIMS),
        UNTRUSTED_KEY.token(),
        UNTRUSTED_KEY.token(jku="https://evil.example/keys", jwk=UNTRUSTED_KEY.jwk()),
        TRUSTED_KEY.token(crit=["exp"]),
        TRUSTED_KEY.token()[:-4] + "AAAA",
        "..",
        "a.b.c",
        "é.é.é",
        f"{base64.urlsafe_b64encode(b'[' * 5000).decode()}.e30.e30",
        f"{base64.urlsafe_b64encode(b'[]').decode()}.e30.e30",
        TRUSTED_KEY.token({"more": "x" * 9000}),
    ],
)
async def test_a_forged_token_is_refused(jwks: Path, token: str) -> None:
    with pytest.raises(InvalidTokenError):
        await TokenVerifier(jwt_settings(jwks)).verify(token)


async def test_a_token_without_a_key_id_uses_the_only_matching_key(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(TRUSTED_KEY))
    token = TRUSTED_KEY.token(named=False)
    assert (await TokenVerifier(jwt_settings(path)).verify(token)).account == "jwt:ann"
    path.write_bytes(key_set(TRUSTED_KEY, UNTRUSTED_KEY))
    with pytest.raises(InvalidTokenError, match="unknown key"):
        await TokenVerifier(jwt_settings(path)).verify(token)
