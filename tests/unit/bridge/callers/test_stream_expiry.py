"""Streams end when their credentials expire or are removed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trunkline.a2a_wire.errors import UNAUTHENTICATED, WireError
from trunkline_bridge.a2a.streams.task_streams import WireEvents, no_events
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
from trunkline_bridge.callers.stream_expiry import StreamExpiry
from trunkline_bridge.http.in_flight import Connection, InFlightRequests


@dataclass(eq=False)
class Badge:
    """A credential that the test removes."""

    reason: str = ""
    checks: int = 0

    def problem(self) -> str:
        self.checks += 1
        return self.reason


@dataclass
class Streams:
    """Opens streams in requests of their own."""

    expiry: StreamExpiry = field(default_factory=StreamExpiry)
    in_flight: InFlightRequests = field(default_factory=InFlightRequests)

    async def hold(self, credential: Credential | None, opened: asyncio.Event) -> Exception | None:
        """Hold a stream open; return the error that ends its response."""
        errors: list[Exception | None] = []

        @asynccontextmanager
        async def events() -> AsyncIterator[WireEvents]:
            yield no_events()

        async def send_abort(error: Exception | None) -> None:
            errors.append(error)

        caller = Caller("math", credential=credential)
        async with (
            self.in_flight.track(Connection(), send_abort=send_abort),
            self.expiry.watch_stream(caller, events()),
        ):
            opened.set()
            await asyncio.Event().wait()
        return errors[0]


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_INTERVAL_S", 0.001)


async def test_all_streams_of_a_credential_end_and_no_others() -> None:
    streams, removed, valid = Streams(), Badge(), Badge()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        ended: list[asyncio.Task[Exception | None]] = []
        others: list[asyncio.Task[Exception | None]] = []
        for credential, tasks in ((removed, ended), (removed, ended), (valid, others)):
            opened = asyncio.Event()
            tasks.append(group.create_task(streams.hold(credential, opened)))
            await opened.wait()
        removed.reason = "it was removed"
        errors = [await task for task in ended]
        assert not others[0].done()
        for task in others:
            task.cancel()
    for error in errors:
        assert isinstance(error, WireError)
        assert (error.kind, error.text) == (UNAUTHENTICATED, "it was removed")
    assert len(streams.in_flight) == 0


async def test_a_caller_without_a_credential_is_not_watched() -> None:
    @asynccontextmanager
    async def events() -> AsyncIterator[WireEvents]:
        yield no_events()

    stream = events()
    assert StreamExpiry().watch_stream(Caller("math"), stream) is stream


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
