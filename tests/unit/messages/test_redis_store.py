"""The distributed store on a real Valkey: leases, claims, lost answers, and what it refuses."""

import asyncio
import itertools
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from redis.asyncio import Redis

from harness.freezable_loop import FreezableLoop
from harness.polling import wait_for
from harness.valkey import ValkeyServer, running_valkey
from trunkline.core.encryption import Keyring, KeySource
from trunkline.core.runtime import run_in_background
from trunkline.core.settings import MessagingSettings
from trunkline.errors import (
    ConfigurationError,
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
)
from trunkline.messages.modes import open_store
from trunkline.messages.redis_records import GrantedDelivery, key_prefix
from trunkline.messages.redis_store import RedisMessageStore
from trunkline.messages.store import Envelope, EnvelopeFilter, NewMessage, QueuedDelivery
from trunkline.v1 import envelope_pb2

HANDLED = envelope_pb2.DELIVERY_STATE_HANDLED
DEAD = envelope_pb2.DELIVERY_STATE_DEAD
PENDING = envelope_pb2.DELIVERY_STATE_PENDING
# Far longer than any wait takes, so that only a hang reaches it.
PATIENCE_S = 10.0
LEASE_S = 0.6

_numbers = itertools.count()


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


OpenStore: TypeAlias = Callable[..., AbstractAsyncContextManager[RedisMessageStore]]


@pytest.fixture
def options(valkey: ValkeyServer) -> MessagingSettings:
    """All stores of a test share their keys, as the processes of a mesh do."""
    return MessagingSettings(url=valkey.url, stream=f"test{next(_numbers)}", lease_s=LEASE_S)


@pytest.fixture
def opened(options: MessagingSettings) -> OpenStore:
    def open_one(
        *, keyring: Keyring | None = None, lease_s: float = LEASE_S
    ) -> AbstractAsyncContextManager[RedisMessageStore]:
        settings = replace(options, lease_s=lease_s)
        return RedisMessageStore.open(settings, keyring=keyring)

    return open_one


def a_message(
    envelope_id: str = "",
    *,
    to: Sequence[str] = ("writer",),
    correlation_id: str = "",
    text: str = "hello",
) -> NewMessage:
    envelope_id = envelope_id or f"m{next(_numbers)}"
    envelope = Envelope(
        envelope_id=envelope_id,
        correlation_id=correlation_id or envelope_id,
        sender="user:ann",
        recipient=to[0] if to else "user:bob",
        type="user_message",
        text=text,
    )
    envelope.create_time.GetCurrentTime()
    return NewMessage("acme", envelope, caller="ann", recipients=to)


class Feed:
    """The deliveries that a store yields, one by one."""

    def __init__(self, store: RedisMessageStore) -> None:
        self._batches = store.deliveries()
        self._waiting: list[QueuedDelivery] = []

    async def take(self) -> GrantedDelivery:
        async with asyncio.timeout(PATIENCE_S):
            while not self._waiting:
                self._waiting += await anext(self._batches)
        delivery = self._waiting.pop(0)
        assert isinstance(delivery, GrantedDelivery)
        return delivery


async def consume(store: RedisMessageStore) -> None:
    async for _ in store.deliveries():
        pass


async def test_a_second_process_gets_half_and_all_after_the_first_one(opened: OpenStore) -> None:
    async with opened() as first, run_in_background(consume(first)):
        await wait_for(lambda: len(first.partitions) == 16)
        async with opened() as second, run_in_background(consume(second)):
            await wait_for(lambda: len(first.partitions) == len(second.partitions) == 8)
            assert not set(first.partitions) & set(second.partitions)
        await wait_for(lambda: len(first.partitions) == 16)


async def test_a_process_that_was_frozen_cannot_write_and_the_next_one_continues_its_task(
    opened: OpenStore,
) -> None:
    with FreezableLoop() as loop:
        stack = AsyncExitStack()
        frozen = await loop.run(stack.enter_async_context(opened()))
        (stored,) = await loop.run(frozen.accept([a_message("poem")]))
        delivery = await loop.run(Feed(frozen).take())
        begun = await loop.run(frozen.begin_attempt(delivery, "task-1"))
        await loop.freeze()
        async with opened() as next_one:
            feed = Feed(next_one)
            taken = await feed.take()
            assert (taken.key, taken.task_id) == (delivery.key, "task-1")
            # Before the thaw: a process that is back gets its share of the partitions again.
            await next_one.end(await next_one.begin_attempt(taken, "task-3"), HANDLED)
            loop.thaw()
            for write in (
                frozen.end(begun, HANDLED, replies=[a_message("reply", to=())]),
                frozen.postpone(begun, problem="", not_before=0),
                frozen.begin_attempt(delivery, "task-2"),
            ):
                with pytest.raises(FencedError):
                    await loop.run(write)
            got = await next_one.get("acme", "poem")
            assert [attempt.task_id for attempt in got.deliveries[0].attempts] == ["task-1"]
            assert got.position == stored.position
            with pytest.raises(Exception, match="reply"):
                await next_one.get("acme", "reply")
        await loop.run(stack.aclose())


async def test_repeated_writes_whose_answers_were_lost_change_nothing(opened: OpenStore) -> None:
    async with opened() as store:
        await store.accept([a_message("order")])
        delivery = await Feed(store).take()
        begun = await store.begin_attempt(delivery, "task-1")
        again = await store.begin_attempt(delivery, "task-2")
        assert (again.task_id, again.attempt_count) == ("task-1", 1)
        await store.postpone(begun, problem="no paper", not_before=5.0)
        repeated = await store.postpone(begun, problem="no paper", not_before=6.0)
        assert (repeated.not_before, repeated.attempt_count) == (5.0, 1)
        third = await store.begin_attempt(repeated, "task-3")
        reply = a_message("reply", to=())
        (stored,) = await store.end(third, HANDLED, replies=[reply])
        with pytest.raises(FencedError):
            await store.end(third, HANDLED, replies=[reply])
        got = await store.get("acme", "order")
        attempts = [(each.task_id, each.problem) for each in got.deliveries[0].attempts]
        assert attempts == [("task-1", "no paper"), ("task-3", "")]
        assert (await store.get("acme", "reply")).position == stored.position


async def test_entries_are_pending_until_their_delivery_ends(
    opened: OpenStore, valkey: ValkeyServer, options: MessagingSettings
) -> None:
    prefix = key_prefix(options)
    # A busy machine must not end the lease.
    async with opened(lease_s=30.0) as store, Redis.from_url(valkey.url) as client:
        await store.accept([a_message("letter")])
        delivery = await Feed(store).take()
        stream = f"{prefix}:deliveries:{delivery.grant.partition}"
        begun = await store.begin_attempt(delivery, "task-1")
        assert (await client.xpending(stream, "workers"))["pending"] == 1
        await store.end(begun, HANDLED)
        assert (await client.xpending(stream, "workers"))["pending"] == 0
        assert await client.xlen(stream) == 0
        # What remains of it goes with the message, except the id until it may be used again.
        assert await store.purge("acme", EnvelopeFilter(envelope_id="letter")) == 1
        assert await client.xlen(f"{prefix}:changes") == 0
        left = [key async for key in client.scan_iter(f"{prefix}:[mx]*")]
        assert left == [f"{prefix}:members".encode()]
        assert 0 < await client.pttl(f"{prefix}:id:acme\0letter") <= 24 * 3600 * 1000
        with pytest.raises(InvalidArgumentError, match="deleted"):
            await store.accept([a_message("letter")])


async def test_a_restart_and_an_empty_server_are_survived(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as server:
        settings = MessagingSettings(url=server.url, lease_s=LEASE_S)
        async with RedisMessageStore.open(settings) as store:
            await store.accept([a_message("before")])
            feed = Feed(store)
            begun = await store.begin_attempt(await feed.take(), "task-1")
            watch = store.watch("acme", EnvelopeFilter(type="user_message"))
            await anext(watch)
            server.stop(signal.SIGKILL)
            with pytest.raises(PeerUnavailableError) as refused:
                await store.accept([a_message("meanwhile")])
            assert str(server.port) not in str(refused.value)
            server.start()
            await store.accept([a_message("after")])
            async with asyncio.timeout(PATIENCE_S):
                rows, _ = await anext(watch)
            assert [each.envelope.envelope_id for each in rows] == ["after"]
            taken = await feed.take()
            while taken.key.envelope_id != "after":
                # Its lease lapsed meanwhile, so it comes again, with the stored task.
                assert (taken.key.envelope_id, taken.task_id) == ("before", "task-1")
                begun = taken
                taken = await feed.take()
            await store.end(begun, HANDLED)
            # A failover to a server that had nothing yet: numbers begin again.
            async with Redis.from_url(server.url) as client:
                await client.flushall()
            server.stop(signal.SIGKILL)
            server.start()
            await store.accept([a_message("new life")])
            # The store is connected again, and has seen the message, before the watch reads on.
            while (await feed.take()).key.envelope_id != "new life":
                pass
            async with asyncio.timeout(PATIENCE_S):
                rows, position = await anext(watch)
            assert position == 1
            assert [each.envelope.envelope_id for each in rows] == ["new life"]
            await watch.aclose()


async def test_messages_and_attempts_are_encrypted_for_all_processes_with_the_key(
    opened: OpenStore, valkey: ValkeyServer, options: MessagingSettings, tmp_path: Path
) -> None:
    def keyring(folder: str, keys: str) -> Keyring:
        (tmp_path / folder).mkdir(exist_ok=True)
        return Keyring.open(tmp_path / folder, KeySource(keys=keys))

    async with (
        opened(keyring=keyring("a", "11" * 32)) as one,
        opened(keyring=keyring("b", "22" * 32 + " " + "11" * 32)) as other,
        opened(keyring=keyring("c", "33" * 32)) as stranger,
    ):
        await one.accept([a_message("secret", text="the cake is a lie")])
        delivery = await Feed(one).take()
        begun = await one.begin_attempt(delivery, "task-1")
        await one.end(begun, DEAD, problem="the oven is cold")
        got = await other.get("acme", "secret")
        assert got.envelope.text == "the cake is a lie"
        assert got.deliveries[0].attempts[0].problem == "the oven is cold"
        with pytest.raises(JournalUnavailableError, match="not in the keyring"):
            await stranger.get("acme", "secret")
        async with Redis.from_url(valkey.url) as client:
            stored = await client.hgetall(f"{key_prefix(options)}:m:{got.position}")
        assert not any(word in value for value in stored.values() for word in (b"cake", b"oven"))


@pytest.mark.parametrize(
    ("mode", "is_there", "chosen"),
    [
        ("auto", True, "distributed"),
        ("auto", False, "local"),
        ("local", True, "local"),
        ("distributed", True, "distributed"),
    ],
)
async def test_the_mode_is_chosen_once_and_logged_without_the_address(
    valkey: ValkeyServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    is_there: bool,
    chosen: str,
) -> None:
    port = valkey.port if is_there else 1
    url = f"redis://user:hunter2@127.0.0.1:{port}" if not is_there else valkey.url
    table = MessagingSettings(mode=mode, url=url, stream=f"mode{next(_numbers)}")  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        async with open_store(table, path=tmp_path / "p" / "messages.db", keyring=None) as store:
            assert store.mode == chosen
    lines = [record for record in caplog.records if record.message == "messages.mode"]
    assert [record.__dict__["mode"] for record in lines] == [chosen]
    assert not any("hunter2" in str(record.__dict__) for record in caplog.records)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "give the address"),
        ("http://user:hunter2@host", "is not an address"),
        ("redis://user:hunter2@127.0.0.1:1", "is no use: the connection failed"),
    ],
)
async def test_a_distributed_mode_without_a_server_ends_the_start(
    tmp_path: Path, url: str, problem: str
) -> None:
    table = MessagingSettings(mode="distributed", url=url)
    with pytest.raises(ConfigurationError, match=problem) as refused:
        async with open_store(table, path=tmp_path / "messages.db", keyring=None):
            pass
    assert "hunter2" not in f"{refused.value!r} {refused.value}"


async def test_a_server_that_may_lose_messages_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = (
        "--appendonly",
        "no",
        "--maxmemory-policy",
        "allkeys-lru",
        "--requirepass",
        "hunter2",
    )
    with running_valkey(tmp_path, *options) as server:
        url = server.url.replace("//", "//default:hunter2@")
        async with RedisMessageStore.open(MessagingSettings(url=url)) as store:
            assert store.partitions == []
    problems = " ".join(record.__dict__.get("problem", "") for record in caplog.records)
    assert "appendonly is off" in problems
    assert "allkeys-lru" in problems
    assert "hunter2" not in problems


async def test_a_full_server_refuses_and_stores_nothing(tmp_path: Path) -> None:
    with running_valkey(tmp_path, "--maxmemory", "3mb") as server:
        async with RedisMessageStore.open(MessagingSettings(url=server.url)) as store:

            async def fill() -> None:
                while True:
                    await store.accept([a_message(text="x" * 100_000)])
                    accepted.append(True)

            accepted: list[bool] = []
            with pytest.raises(PeerUnavailableError, match="maxmemory"):
                await fill()
            page = await store.read_page("acme", EnvelopeFilter(), page_size=100)
            assert len(page.messages) == len(accepted)
