"""Files of API keys: parsing, writing, reloading."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.journal.manual_clock import ManualClock
from harness.remote.token_issuer import write_api_keys
from trunkline.errors import ConfigurationError
from trunkline_bridge.callers.api_keys import (
    RELOAD_INTERVAL_S,
    ApiKey,
    ApiKeyFile,
    generate_key,
    hash_key,
    load_keys,
    save_keys,
)

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def test_saved_keys_are_loaded_from_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    keys = [
        ApiKey("ci", "acme", hash_key("k")),
        ApiKey("é#' [", "other one", hash_key("l")),
        ApiKey("ci", "acme", hash_key("m"), NEW_YEAR, ("math", "r-*"), ("read", "CancelTask")),
    ]
    save_keys(path, keys)
    assert load_keys(path) == keys
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["keys.toml"]


def test_the_file_does_not_hold_the_key(tmp_path: Path) -> None:
    key = generate_key()
    path = write_api_keys(tmp_path / "keys.toml", [("ci", "acme", key)])
    assert key not in path.read_text()
    api_key = ApiKeyFile(path).find(key)
    assert api_key is not None
    assert (api_key.name, api_key.account) == ("ci", "acme")
    assert generate_key() != key


@pytest.mark.parametrize("key", ["", "K", "k ", "k\x00", "é", "\udc80", "k" * 60_000])
def test_an_unknown_key_is_not_found(tmp_path: Path, key: str) -> None:
    keys = ApiKeyFile(write_api_keys(tmp_path / "keys.toml", [("ci", "acme", "k")]))
    assert keys.find(key) is None


@pytest.mark.parametrize("text", [None, "[[key]", "key = 1"])
def test_a_file_that_became_unreadable_has_no_keys(tmp_path: Path, text: str | None) -> None:
    clock = ManualClock()
    path = write_api_keys(tmp_path / "keys.toml", [("a", "acme", "k")])
    keys = ApiKeyFile(path, clock)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    clock.now += RELOAD_INTERVAL_S
    assert keys.find("k") is None
    write_api_keys(path, [("a", "acme", "k")])
    clock.now += RELOAD_INTERVAL_S
    assert keys.find("k") is not None


EXPIRES = "expires = 2027-01-01T00:00:00Z\n"
ENTRY = '[[key]]\nname = "a"\naccount = "b"\nsha256 = "' + "0" * 64 + '"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[key]]\n", "must have name, account and sha256"),
        (ENTRY + 'key = "secret"\n', "must have name, account and sha256"),
        (ENTRY + ENTRY, "the same name"),
        (ENTRY + ENTRY.replace('"b"', '"c"') + EXPIRES, "several accounts"),
        (ENTRY + 'expires = "2027-01-01T00:00:00Z"\n', "expires must be a date with a time"),
        (ENTRY + "expires = 2027-01-01T00:00:00\n", "no time zone"),
        (ENTRY + "expires = 2027-01-01\n", "expires must be a date with a time"),
        (ENTRY + "agents = []\n", "agents must be a list of names, at least one"),
        (ENTRY + 'agents = "math"\n', "agents must be a list"),
        (ENTRY + "methods = []\n", "methods must be a list of names, at least one"),
        (ENTRY + 'methods = ["Send"]\n', "'Send' is no method; there are: read, CancelTask"),
        ("other = 1\n" + ENTRY, "must contain only"),
        (ENTRY.replace('"b"', '"anonymous"'), "account"),
        (ENTRY.replace('"b"', '""'), "account"),
        (ENTRY.replace('"b"', "1"), "account"),
        (ENTRY.replace('"a"', '"a\\nb"'), "name"),
        (ENTRY.replace("0000", "00", 1), "64"),
        (ENTRY.replace("0000", "XXXX", 1), "64"),
        ("\x00", "TOML"),
    ],
)
def test_an_invalid_file_is_reported_with_the_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=problem):
        ApiKeyFile(path)


def test_a_key_is_not_accepted_from_its_expiry_on() -> None:
    key = ApiKey("ci", "acme", hash_key("k"), NEW_YEAR)
    assert not key.is_expired(NEW_YEAR - timedelta(seconds=1))
    assert key.is_expired(NEW_YEAR)
    assert not ApiKey("ci", "acme", hash_key("k")).is_expired(NEW_YEAR)
