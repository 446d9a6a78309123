"""Key sets are cached, refreshed and bounded in age."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harness.journal.manual_clock import ManualClock
from harness.remote.token_issuer import SigningKey, key_set
from trunkline.a2a_wire.key_sets import parse_key_set
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.callers.jwt_tokens import (
    MAX_AGE_S,
    MAX_STALE_S,
    REFRESH_INTERVAL_S,
    RETRY_INTERVAL_S,
    JwkSet,
)
from trunkline_bridge.http.server import serve_http

FIRST, SECOND = SigningKey("first"), SigningKey("second")


class Issuer:
    """Serves keys and counts the fetches."""

    def __init__(self) -> None:
        self.keys = key_set(FIRST)
        self.status = 200
        self.fetches = 0
        self.url = ""
        self.is_requested = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, _request: Request) -> Response:
        self.fetches += 1
        self.is_requested.set()
        await self.may_answer.wait()
        return Response(self.keys, status_code=self.status)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    new_issuer = Issuer()
    app = Starlette(routes=[Route("/keys", new_issuer.serve)])
    async with serve_http(app, host="127.0.0.1", port=0, grace_s=0) as url:
        new_issuer.url = f"{url}/keys"
        yield new_issuer


async def has_key(keys: JwkSet, key_id: str) -> bool:
    return await keys.find(key_id, "ES256") is not None


async def test_concurrent_callers_share_one_fetch(issuer: Issuer) -> None:
    keys = JwkSet(issuer.url)
    async with asyncio.TaskGroup() as group:
        request_tasks = [group.create_task(has_key(keys, "first")) for _ in range(20)]
    assert all(task.result() for task in request_tasks)
    assert issuer.fetches == 1


async def test_canceled_callers_do_not_cause_repeated_fetches(
    issuer: Issuer,
) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    issuer.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        request_tasks = group.create_task(has_key(keys, "first"))
        await issuer.is_requested.wait()
        request_tasks.cancel()
    for _ in range(20):
        with pytest.raises(PeerUnavailableError):
            await keys.find("first", "ES256")
    assert issuer.fetches == 1
    issuer.may_answer.set()
    clock.now += RETRY_INTERVAL_S
    assert await has_key(keys, "first")


async def test_a_new_key_is_found_and_unknown_ones_do_not_cause_repeated_fetches(
    issuer: Issuer,
) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    assert await has_key(keys, "first")
    issuer.keys = key_set(FIRST, SECOND)
    for number in range(100):
        assert not await has_key(keys, f"made-up-{number}")
    assert issuer.fetches == 1
    clock.now += REFRESH_INTERVAL_S
    assert await has_key(keys, "second")
    for number in range(100):
        assert not await has_key(keys, f"made-up-{number}")
    assert issuer.fetches == 2


async def test_a_removed_key_expires(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    assert await has_key(keys, "first")
    issuer.keys = key_set(SECOND)
    assert await has_key(keys, "first")
    clock.now += MAX_AGE_S
    assert not await has_key(keys, "first")


async def test_known_keys_survive_an_unreachable_issuer(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    assert await has_key(keys, "first")
    issuer.status = 503
    clock.now += MAX_AGE_S
    assert await has_key(keys, "first")
    clock.now = 1000.0 + MAX_STALE_S + RETRY_INTERVAL_S
    with pytest.raises(PeerUnavailableError):
        await keys.find("first", "ES256")
    issuer.status = 200
    clock.now += RETRY_INTERVAL_S
    assert await has_key(keys, "first")


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"keys": 1}', b"[" * 100_000, b"x" * 2_000_000])
async def test_an_invalid_key_set_is_refused(issuer: Issuer, answer: bytes) -> None:
    issuer.keys = answer
    with pytest.raises(PeerUnavailableError):
        await JwkSet(issuer.url).find("first", "ES256")


async def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailableError):
        await JwkSet(str(tmp_path / "none.json")).find("first", "ES256")


def test_only_public_signature_keys_are_accepted() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    encryption_key = {**FIRST.jwk(), "use": "enc"}
    text = json.dumps({"keys": [secret, encryption_key, 7, {}, SECOND.jwk()]})
    assert [key["kid"] for key in parse_key_set(text)] == ["second"]
