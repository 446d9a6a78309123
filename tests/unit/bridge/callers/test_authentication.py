"""Settings choose the authenticator; wrong ones are rejected."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.remote.token_issuer import token_settings, write_api_keys
from trunkline.errors import ConfigurationError
from trunkline_bridge.callers.authentication import build_authenticator
from trunkline_bridge.settings import BridgeSettings

TOKENS = token_settings("keys.json")


def test_without_settings_access_is_anonymous() -> None:
    assert build_authenticator(BridgeSettings()).security.is_anonymous_only


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"issuer": ""}, "jwt_issuer"),
        ({"audience": ""}, "jwt_audience"),
        ({"keys": "http://issuer.example/keys"}, "jwt_keys"),
        ({"algorithms": ()}, "jwt_algorithms"),
        ({"algorithms": ("RS256", "HS256")}, "jwt_algorithms"),
        ({"algorithms": ("none",)}, "jwt_algorithms"),
    ],
)
def test_invalid_token_settings_are_refused(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigurationError, match=setting):
        build_authenticator(BridgeSettings(tokens=replace(TOKENS, **changes)))


@pytest.mark.parametrize("keys", ["https://issuer.example/keys", "http://localhost:1/keys"])
def test_keys_are_fetched_by_https_or_from_this_machine(keys: str) -> None:
    assert not build_authenticator(
        BridgeSettings(tokens=replace(TOKENS, keys=keys))
    ).security.is_anonymous_only


def test_required_credentials_are_declared(tmp_path: Path) -> None:
    keys = write_api_keys(tmp_path / "keys.toml", [])
    by_key = build_authenticator(BridgeSettings(api_keys_file=keys)).security
    assert list(by_key.schemes) == ["apiKey", "bearer"]
    assert by_key.schemes["bearer"].http_auth_security_scheme.bearer_format == ""
    by_token = build_authenticator(BridgeSettings(tokens=TOKENS)).security
    assert list(by_token.schemes) == ["bearer"]
    assert by_token.schemes["bearer"].http_auth_security_scheme.bearer_format == "JWT"
    either = build_authenticator(
        BridgeSettings(api_keys_file=keys, tokens=TOKENS, anonymous=True)
    ).security
    assert [list(requirement.schemes) for requirement in either.requirements] == [
        ["apiKey"],
        ["bearer"],
        [],
    ]
