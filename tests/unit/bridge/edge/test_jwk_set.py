"""Key sets are fetched rarely and stay current."""

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
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.edge.http_server import serve_http
from trunkline_bridge.edge.jwt_tokens import (
    MAX_AGE_S,
    MAX_STALE_S,
    REFRESH_INTERVAL_S,
    RETRY_INTERVAL_S,
    JwkSet,
    parse_key_set,
)

FIRST, SECOND = SigningKey("first"), SigningKey("second")


class Issuer:
    """Serves keys and counts the requests."""

    def __init__(self) -> None:
        self.keys = key_set(FIRST)
        self.status = 200
        self.fetches = 0
        self.url = ""
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, _request: Request) -> Response:
        self.fetches += 1
        self.asked.set()
        await self.may_answer.wait()
        return Response(self.keys, status_code=self.status)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    app = Starlette(routes=[Route("/keys", made.serve)])
    async with serve_http(app, host="127.0.0.1", port=0, grace_s=0) as url:
        made.url = f"{url}/keys"
        yield made


async def found(keys: JwkSet, key_id: str) -> bool:
    return await keys.find(key_id, "ES256") is not None


async def test_keys_are_fetched_once_for_all_who_ask_together(issuer: Issuer) -> None:
    keys = JwkSet(issuer.url)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(found(keys, "first")) for _ in range(20)]
    assert all(task.result() for task in asked)
    assert issuer.fetches == 1


async def test_those_who_leave_before_an_answer_do_not_make_us_fetch_each_time(
    issuer: Issuer,
) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    issuer.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(found(keys, "first"))
        await issuer.asked.wait()
        asked.cancel()
    for _ in range(20):
        with pytest.raises(PeerUnavailableError):
            await keys.find("first", "ES256")
    assert issuer.fetches == 1
    issuer.may_answer.set()
    clock.now += RETRY_INTERVAL_S
    assert await found(keys, "first")


async def test_a_new_key_is_found_and_unknown_ones_do_not_make_us_fetch_each_time(
    issuer: Issuer,
) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    assert await found(keys, "first")
    issuer.keys = key_set(FIRST, SECOND)
    for number in range(100):
        assert not await found(keys, f"made-up-{number}")
    assert issuer.fetches == 1
    clock.now += REFRESH_INTERVAL_S
    assert await found(keys, "second")
    for number in range(100):
        assert not await found(keys, f"made-up-{number}")
    assert issuer.fetches == 2


async def test_a_key_that_was_taken_away_is_not_good_for_long(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    assert await found(keys, "first")
    issuer.keys = key_set(SECOND)
    assert await found(keys, "first")
    clock.now += MAX_AGE_S
    assert not await found(keys, "first")


async def test_known_keys_outlive_an_issuer_that_is_away(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = JwkSet(issuer.url, clock)
    assert await found(keys, "first")
    issuer.status = 503
    clock.now += MAX_AGE_S
    assert await found(keys, "first")
    clock.now = 1000.0 + MAX_STALE_S + RETRY_INTERVAL_S
    with pytest.raises(PeerUnavailableError):
        await keys.find("first", "ES256")
    issuer.status = 200
    clock.now += RETRY_INTERVAL_S
    assert await found(keys, "first")


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"keys": 1}', b"[" * 100_000, b"x" * 2_000_000])
async def test_an_answer_that_is_no_key_set_is_no_key_set(issuer: Issuer, answer: bytes) -> None:
    issuer.keys = answer
    with pytest.raises(PeerUnavailableError):
        await JwkSet(issuer.url).find("first", "ES256")


async def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailableError):
        await JwkSet(str(tmp_path / "none.json")).find("first", "ES256")


def test_only_public_keys_for_signatures_are_taken() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    sealing = {**FIRST.jwk(), "use": "enc"}
    text = json.dumps({"keys": [secret, sealing, 7, {}, SECOND.jwk()]})
    assert [key["kid"] for key in parse_key_set(text)] == ["second"]
