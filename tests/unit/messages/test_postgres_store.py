"""The store of messages in PostgreSQL with several processes: leases, order, outages, watches."""

import asyncio
import contextlib
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from harness.freezable_loop import FreezableLoop
from harness.journal.postgres_server import CuttableProxy, PostgresServer, new_database
from harness.polling import wait_for
from trunkline.core.backoff import retry_while_unavailable
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.runtime import run_in_background
from trunkline.core.settings import MessagingSettings
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.messages.postgres_store import PostgresMessageStore
from trunkline.messages.postgres_writer import lock_writes
from trunkline.messages.store import Envelope, EnvelopeFilter, NewMessage, QueuedDelivery
from trunkline.v1 import envelope_pb2

HANDLED = envelope_pb2.DELIVERY_STATE_HANDLED
DEAD = envelope_pb2.DELIVERY_STATE_DEAD
# Far longer than any wait takes, so that only a hang reaches it.
PATIENCE_S = 30.0
LEASE_S = 0.6

_numbers = itertools.count()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with new_database() as created:
        yield created


@asynccontextmanager
async def open_store(url: str, *, lease_s: float = LEASE_S) -> AsyncIterator[PostgresMessageStore]:
    """Open the store as a further process, with connections of its own."""
    async with (
        PostgresDatabase(url) as database,
        PostgresMessageStore.open(database, MessagingSettings(lease_s=lease_s)) as store,
    ):
        yield store


def a_message(
    envelope_id: str = "", *, to: Sequence[str] = ("writer",), conversation: str = ""
) -> NewMessage:
    envelope_id = envelope_id or f"m{next(_numbers)}"
    envelope = Envelope(
        envelope_id=envelope_id,
        correlation_id=conversation or envelope_id,
        sender="user:ann",
        recipient=to[0] if to else "user:bob",
        type="user_message",
        text="hello",
    )
    envelope.create_time.GetCurrentTime()
    return NewMessage("acme", envelope, caller="ann", recipients=to)


class Feed:
    """The deliveries that a store yields, one by one."""

    def __init__(self, store: PostgresMessageStore) -> None:
        self._batches = store.deliveries()
        self._waiting: list[QueuedDelivery] = []

    async def take(self) -> QueuedDelivery:
        async with asyncio.timeout(PATIENCE_S):
            while not self._waiting:
                self._waiting += await anext(self._batches)
        return self._waiting.pop(0)


async def consume(store: PostgresMessageStore) -> None:
    async for _ in store.deliveries():
        pass


async def test_a_second_process_gets_half_and_all_after_the_first_one(url: str) -> None:
    async with open_store(url) as first, run_in_background(consume(first)):
        await wait_for(lambda: len(first.partitions) == 16)
        async with open_store(url) as second, run_in_background(consume(second)):
            await wait_for(lambda: len(first.partitions) == len(second.partitions) == 8)
            assert not set(first.partitions) & set(second.partitions)
        await wait_for(lambda: len(first.partitions) == 16)


async def test_processes_deliver_each_message_once_and_conversations_in_order(url: str) -> None:
    total = 300
    handled: list[tuple[str, str]] = []
    is_done = asyncio.Event()

    async def deliver(store: PostgresMessageStore) -> None:
        async for batch in store.deliveries():
            for delivery in batch:
                try:
                    begun = await store.begin_attempt(delivery, "task")
                    await store.end(begun, HANDLED)
                except FencedError:
                    # The partition went to another process.
                    continue
                envelope = delivery.envelope
                handled.append((envelope.correlation_id, envelope.envelope_id))
                if len(handled) == total:
                    is_done.set()

    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(url)) for _ in range(3)]
        for store in stores:
            await stack.enter_async_context(run_in_background(deliver(store)))
        expected: dict[str, list[str]] = {}
        for number in range(total):
            name = f"c{number % 20}"
            expected.setdefault(name, []).append(f"{number}")
            await stores[number % 3].accept([a_message(f"{number}", conversation=name)])
        async with asyncio.timeout(PATIENCE_S):
            await is_done.wait()
    assert len(handled) == total
    for name, ids in expected.items():
        assert [envelope_id for each, envelope_id in handled if each == name] == ids


async def test_a_process_that_was_frozen_cannot_write_and_the_next_one_continues_its_task(
    url: str,
) -> None:
    with FreezableLoop() as loop:
        stack = AsyncExitStack()
        frozen = await loop.run(stack.enter_async_context(open_store(url)))
        (stored,) = await loop.run(frozen.accept([a_message("poem")]))
        delivery = await loop.run(Feed(frozen).take())
        begun = await loop.run(frozen.begin_attempt(delivery, "task-1"))
        await loop.freeze()
        async with open_store(url) as next_one:
            # It may have been frozen in a transaction, which the database ends after a while.
            taken = await retry_while_unavailable(lambda: Feed(next_one).take())
            assert (taken.key, taken.task_id) == (delivery.key, "task-1")
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
            assert [attempt.task_id for attempt in got.deliveries[0].attempts] == [
                "task-1",
                "task-3",
            ]
            assert got.position == stored.position
            with pytest.raises(Exception, match="reply"):
                await next_one.get("acme", "reply")
        await loop.run(stack.aclose())


async def test_dead_letters_that_another_process_redrives_come_again(url: str) -> None:
    async with open_store(url) as first, open_store(url) as second:
        feed = Feed(first)
        await second.accept([a_message("1"), a_message("2")])
        for _ in range(2):
            await first.end(await feed.take(), DEAD, problem="bad")
        assert await second.redrive("acme", EnvelopeFilter(envelope_id="1")) == 1
        again = await feed.take()
        assert (again.key.envelope_id, again.attempt_count) == ("1", 0)


async def test_watches_in_another_process_miss_nothing_and_see_it_soon(url: str) -> None:
    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(open_store(url)) for _ in range(3)]
        reader = await stack.enter_async_context(open_store(url))
        watch = await stack.enter_async_context(aclosing(reader.watch("acme", EnvelopeFilter())))
        await anext(watch)
        sent_s: dict[str, float] = {}
        delays_s: list[float] = []
        seen: list[int] = []

        async def write(store: PostgresMessageStore) -> None:
            for _ in range(50):
                message = a_message(to=())
                await store.accept([message])
                sent_s[message.envelope.envelope_id] = time.perf_counter()
                await asyncio.sleep(0.01)

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for store in writers:
                group.create_task(write(store))
            while len(seen) < 150:
                stored, _ = await anext(watch)
                now_s = time.perf_counter()
                seen += [each.position for each in stored]
                delays_s += [
                    now_s - sent_s.get(each.envelope.envelope_id, now_s) for each in stored
                ]
    assert seen == list(range(1, 151))
    # 50 ms on an idle machine.
    assert statistics.quantiles(delays_s, n=20)[-1] < 0.5


async def wait_for_more(items: Sequence[str]) -> None:
    count = len(items)
    await wait_for(lambda: len(items) > count + 20)


async def test_a_killed_server_loses_and_doubles_nothing() -> None:
    server = PostgresServer()
    accepted: list[str] = []

    async def write(store: PostgresMessageStore) -> None:
        while True:
            message = a_message(conversation="c")
            try:
                await store.accept([message])
            except JournalUnavailableError:
                await asyncio.sleep(0.01)
            else:
                accepted.append(message.envelope.envelope_id)

    async with (
        open_store(server.url) as first,
        open_store(server.url) as second,
        aclosing(second.watch("acme", EnvelopeFilter(), after_position=0)) as watch,
    ):
        feed = Feed(first)
        async with (
            run_in_background(write(first)),
            run_in_background(write(second)),
        ):
            for _ in range(3):
                await wait_for_more(accepted)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await wait_for_more(accepted)
        wanted = set(accepted)
        positions: list[int] = []
        async with asyncio.timeout(PATIENCE_S):
            while wanted:
                stored, _ = await anext(watch)
                positions += [each.position for each in stored]
                wanted -= {each.envelope.envelope_id for each in stored}
        assert positions == sorted(set(positions))
        ids = [(await feed.take()).key.envelope_id for _ in accepted]
        assert len(set(ids)) == len(ids)
    server.remove()


async def test_a_process_that_hangs_within_a_transaction_stops_the_others_for_seconds(
    url: str,
) -> None:
    async with open_store(url) as store, PostgresDatabase(url) as database:
        # The database has ended the transaction by then.
        with contextlib.suppress(JournalUnavailableError):
            async with database.transaction() as connection:
                await lock_writes(connection)
                began_s = time.monotonic()
                await store.accept([a_message("1")])
        assert 1 < time.monotonic() - began_s < 20


async def test_a_write_that_was_given_up_does_not_pass_for_a_later_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers to both commits are lost, and only the first one is stored."""
    parts = urlsplit(url)
    assert parts.port is not None
    async with CuttableProxy(parts.port) as proxy:
        cuttable = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}"))
        async with open_store(cuttable.geturl()) as store, open_store(url) as other:
            with monkeypatch.context() as patch:
                patch.setattr("trunkline.messages.postgres_writer.PATIENCE_S", 0.0)
                proxy.cut_commit(b"given-up", is_stored=True)
                with pytest.raises(JournalUnavailableError):
                    await store.accept([a_message("given-up")])
            proxy.cut_commit(b"accepted", is_stored=False)
            await store.accept([a_message("accepted")])
            for envelope_id in ("given-up", "accepted"):
                stored = await other.get("acme", envelope_id)
                assert stored.envelope.envelope_id == envelope_id
