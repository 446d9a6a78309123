"""Streams end when their credentials expire or are removed."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trunkline.core.settings import LimitSettings
from trunkline_bridge.callers import api_keys
from trunkline_bridge.callers.account_limits import AccountLimiter
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


@dataclass
class Streams:
    """Opens streams in requests of their own."""

    streams: CallerStreams = field(
        default_factory=lambda: CallerStreams(AccountLimiter(LimitSettings()))
    )
    in_flight: InFlightRequests = field(default_factory=InFlightRequests)

    async def hold(self, credential: Credential | None, opened: asyncio.Event) -> Exception | None:
        """Hold a stream open; return the error that ends its response."""
        errors: list[Exception | None] = []

        async def send_abort(error: Exception | None) -> None:
            errors.append(error)

        caller = Caller("math", credential=credential)
        async with self.in_flight.track(Connection(), send_abort=send_abort):
            with self.streams.hold(caller):
                opened.set()
                await asyncio.Event().wait()
        return errors[0]


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_INTERVAL_S", 0.001)


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
