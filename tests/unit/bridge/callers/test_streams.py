"""Streams are limited per account, and their credentials expire or are removed."""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trunkline.core.settings import LimitSettings
from trunkline.errors import LimitExceededError
from trunkline_bridge.callers.api_keys import (
    ApiKey,
    ApiKeyCredential,
    ApiKeyFile,
    hash_key,
    save_keys,
)
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.jwt_tokens import TokenCredential
from trunkline_bridge.callers.streams import CallerStreams


def open_streams(limits: LimitSettings) -> CallerStreams:
    return CallerStreams(limits)


def test_a_token_expires() -> None:
    now = datetime.now(UTC).timestamp()
    assert TokenCredential(now + 60).problem() == ""
    assert TokenCredential(now - 1).problem() == "the token has expired"


def test_a_key_expires_by_the_file_and_may_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    key = ApiKey("ci", "acme", hash_key("secret"))
    save_keys(path, [key])
    clock = iter(range(100))
    file = ApiKeyFile(path, lambda: next(clock))
    accepted = file.find("secret")
    assert accepted is not None
    credential = ApiKeyCredential(file, accepted)
    assert credential.problem() == ""
    # As `trunkline keys rotate` does.
    expired = ApiKey("ci", "acme", key.sha256, datetime.now(UTC) - timedelta(seconds=1))
    save_keys(path, [expired, ApiKey("ci", "acme", hash_key("new"))])
    assert credential.problem() == "the API key has expired"
    save_keys(path, [ApiKey("ci", "acme", hash_key("new"))])
    assert credential.problem() == "the API key is no longer accepted"


def test_open_streams_are_limited_per_account() -> None:
    streams = open_streams(LimitSettings(streams=2))
    ann, bob = Caller("math", account="a"), Caller("math", account="b")
    with ExitStack() as stack:
        for caller in (ann, ann, bob):
            stack.enter_context(streams.hold(caller))
        with pytest.raises(LimitExceededError, match="account 'a' has 2 open streams"):
            stack.enter_context(streams.hold(ann))
    with streams.hold(ann), pytest.raises(ValueError, match="failed"), streams.hold(ann):
        raise ValueError("failed")
    with streams.hold(ann), streams.hold(ann):
        pass
