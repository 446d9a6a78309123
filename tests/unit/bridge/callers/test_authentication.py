"""Settings choose the authenticator; wrong ones are rejected."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.remote.token_issuer import jwt_settings, write_api_keys
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline_bridge.callers.authentication import build_authenticator

TOKENS = jwt_settings("keys.json")


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"jwt_issuer": ""}, "jwt_issuer"),
        ({"jwt_audience": ""}, "jwt_audience"),
        ({"jwt_keys": "http://issuer.example/keys"}, "jwt_keys"),
        ({"jwt_algorithms": ()}, "jwt_algorithms"),
        ({"jwt_algorithms": ("RS256", "HS256")}, "jwt_algorithms"),
        ({"jwt_algorithms": ("none",)}, "jwt_algorithms"),
    ],
)
def test_invalid_jwt_settings_are_refused(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigurationError, match=setting):
        build_authenticator(replace(TOKENS, **changes))


@pytest.mark.parametrize("keys", ["https://issuer.example/keys", "http://localhost:1/keys"])
def test_keys_are_fetched_by_https_or_from_this_machine(keys: str) -> None:
    settings = replace(TOKENS, jwt_keys=keys)
    assert not build_authenticator(settings).security.is_anonymous_only


def test_required_credentials_are_declared(tmp_path: Path) -> None:
    keys = write_api_keys(tmp_path / "keys.toml", [])
    by_key = build_authenticator(Settings(api_keys_file=keys)).security
    assert list(by_key.schemes) == ["apiKey", "bearer"]
    assert by_key.schemes["bearer"].http_auth_security_scheme.bearer_format == ""
    by_token = build_authenticator(TOKENS).security
    assert list(by_token.schemes) == ["bearer"]
    assert by_token.schemes["bearer"].http_auth_security_scheme.bearer_format == "JWT"
    settings = replace(TOKENS, api_keys_file=keys, anonymous=True)
    either = build_authenticator(settings).security
    assert [list(requirement.schemes) for requirement in either.requirements] == [
        ["apiKey"],
        ["bearer"],
        [],
    ]
