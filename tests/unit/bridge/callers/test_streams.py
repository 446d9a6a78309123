"""Streams are limited per account, and end when their credentials expire or are removed."""

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trunkline.core.settings import LimitSettings
from trunkline.errors import LimitExceededError
from trunkline_bridge.callers import api_keys
from trunkline_bridge.callers.api_keys import (
    ApiKey,
    ApiKeyCredential,
    ApiKeyFile,
    hash_key,
    save_keys,
)
from trunkline_bridge.callers.caller import Caller, Credential
from trunkline_bridge.callers.jwt_tokens import TokenCredential
from trunkline_bridge.callers.streams import CallerStreams
from trunkline_bridge.http.in_flight import Connection, InFlightRequests


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


async def test_a_stream_of_a_refused_credential_ends_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_INTERVAL_S", 0.001)
    streams, in_flight = open_streams(LimitSettings(streams=1)), InFlightRequests()
    errors: dict[str, list[Exception | None]] = {"expiring": [], "valid": []}
    all_open = asyncio.Barrier(3)

    async def hold(name: str, credential: Credential) -> None:
        async def send_abort(error: Exception | None) -> None:
            errors[name].append(error)

        caller = Caller("math", account=name, credential=credential)
        async with in_flight.track(Connection(), send_abort=send_abort):
            with streams.hold(caller):
                await all_open.wait()
                await asyncio.Event().wait()

    now_s = datetime.now(UTC).timestamp()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        expiring = tasks.create_task(hold("expiring", TokenCredential(now_s + 0.05)))
        valid = tasks.create_task(hold("valid", TokenCredential(now_s + 60)))
        await all_open.wait()
        await expiring
        assert not valid.done()
        # The account may open a stream again.
        with streams.hold(Caller("math", account="expiring")):
            valid.cancel()
    (error,) = errors["expiring"]
    assert str(error) == "the token has expired"
    assert not errors["valid"]
