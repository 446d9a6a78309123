"""The conformance suite of message stores. A store joins by a factory in FACTORIES."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from harness.journal.postgres_server import new_database
from harness.valkey import running_valkey
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.settings import MessagingSettings
from trunkline.errors import (
    EnvelopeNotFoundError,
    FencedError,
    InvalidArgumentError,
    QueueFullError,
)
from trunkline.messages.postgres_store import PostgresMessageStore
from trunkline.messages.redis_store import RedisMessageStore
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import (
    Envelope,
    EnvelopeFilter,
    MessageStore,
    NewMessage,
    QueuedDelivery,
)
from trunkline.v1 import envelope_pb2 as pb2

WAIT_S = 60.0
QUEUE_LIMIT = 2_000

# Opens the same store at each call; the previous one is closed by then.
OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[MessageStore]]


@asynccontextmanager
async def sqlite_stores(folder: Path) -> AsyncIterator[OpenStore]:
    def open_store() -> SqliteMessageStore:
        return SqliteMessageStore(folder / "messages.db", queue_limit=QUEUE_LIMIT)

    yield open_store


@asynccontextmanager
async def redis_stores(folder: Path) -> AsyncIterator[OpenStore]:
    with running_valkey(folder / "valkey") as server:
        settings = MessagingSettings(url=server.url, queue_limit=QUEUE_LIMIT, lease_s=1)
        yield partial(RedisMessageStore.open, settings)


@asynccontextmanager
async def postgres_stores(_folder: Path) -> AsyncIterator[OpenStore]:
    async with new_database() as url, PostgresDatabase(url) as database:
        settings = MessagingSettings(queue_limit=QUEUE_LIMIT, lease_s=1)
        yield partial(PostgresMessageStore.open, database, settings)


FACTORIES: dict[str, Callable[[Path], AbstractAsyncContextManager[OpenStore]]] = {
    "local": sqlite_stores,
    "distributed": redis_stores,
    "database": postgres_stores,
}


@pytest.fixture(params=FACTORIES)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    async with FACTORIES[request.param](tmp_path) as opening:
        yield opening


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[MessageStore]:
    async with open_store() as opened:
        yield opened


def message(
    text: str = "x",
    *recipients: str,
    id: str = "",  # noqa: A002  the name of the field
    account: str = "acme",
    created: datetime | None = None,
    **fields: Any,
) -> NewMessage:
    envelope = Envelope(
        envelope_id=id or str(uuid.uuid4()),
        sender="user:ann",
        recipient=recipients[0] if recipients else "user:bob",
        type="note",
        text=text,
    )
    for name, value in fields.items():
        setattr(envelope, name, value)
    envelope.correlation_id = envelope.correlation_id or envelope.envelope_id
    envelope.create_time.FromDatetime(created or datetime.now(UTC))
    return NewMessage(account, envelope, caller="ann", recipients=recipients)


class Reader:
    """Reads the deliveries of a store, as the dispatcher does."""

    def __init__(self, store: MessageStore) -> None:
        self._deliveries = store.deliveries()

    async def take(self, count: int) -> list[QueuedDelivery]:
        taken: list[QueuedDelivery] = []
        async with asyncio.timeout(WAIT_S):
            while len(taken) < count:
                taken += await anext(self._deliveries)
        assert len(taken) == count
        return taken


async def find(store: MessageStore, account: str = "acme", **conditions: Any) -> Sequence[str]:
    page = await store.read_page(account, EnvelopeFilter(**conditions), page_size=100)
    return [stored.envelope.envelope_id for stored in page.messages]


async def state_of(store: MessageStore, envelope_id: str) -> pb2.Delivery:
    (delivery,) = (await store.get("acme", envelope_id)).deliveries
    return delivery


async def test_what_is_accepted_is_there_after_a_restart(open_store: OpenStore) -> None:
    async with open_store() as store:
        first, second = await store.accept([message("a", "x", "y", id="1"), message("b", id="2")])
        assert first.position < second.position
    async with open_store() as store:
        stored = await store.get("acme", "1")
        assert stored == first
        assert (stored.account, stored.caller, stored.envelope.text) == ("acme", "ann", "a")
        assert [(each.recipient, each.state) for each in stored.deliveries] == [
            ("x", pb2.DELIVERY_STATE_PENDING), ("y", pb2.DELIVERY_STATE_PENDING),
        ]  # fmt: skip
        taken = await Reader(store).take(2)
        assert {each.key.recipient for each in taken} == {"x", "y"}
        assert {each.position for each in taken} == {first.position}
        (third,) = await store.accept([message("c", id="3")])
        assert third.position > second.position


async def test_an_id_is_accepted_once_in_an_account(store: MessageStore) -> None:
    first = message("a", "x", id="1")
    (stored,) = await store.accept([first])
    (again,) = await store.accept([message("a", "x", id="1")])
    assert again.position == stored.position
    with pytest.raises(InvalidArgumentError, match="'1' was used for another message"):
        await store.accept([message("other", id="2"), message("b", "x", id="1")])
    with pytest.raises(EnvelopeNotFoundError):
        await store.get("acme", "2")
    (other,) = await store.accept([message("b", "x", id="1", account="other")])
    assert other.position > stored.position
    assert len(await Reader(store).take(2)) == 2


async def test_the_queue_is_bounded_and_refuses_all_or_nothing(store: MessageStore) -> None:
    await store.accept([message(f"{n}", "x") for n in range(QUEUE_LIMIT - 1)])
    with pytest.raises(QueueFullError):
        await store.accept([message("a", "x"), message("b", "x", id="b")])
    with pytest.raises(EnvelopeNotFoundError):
        await store.get("acme", "b")
    # Messages that nobody handles do not wait.
    await store.accept([message("c")])
    (last,) = await store.accept([message("d", "x")])
    assert last.deliveries


async def test_a_delivery_goes_through_its_states(store: MessageStore) -> None:
    await store.accept([message("a", "x", id="1")])
    (delivery,) = await Reader(store).take(1)
    begun = await store.begin_attempt(delivery, "task-1")
    assert (begun.attempt_count, begun.task_id) == (1, "task-1")
    assert (await state_of(store, "1")).state == pb2.DELIVERY_STATE_RUNNING
    not_before = datetime.now(UTC).timestamp() + 5
    postponed = await store.postpone(begun, problem="it fell", not_before=not_before)
    assert (postponed.attempt_count, postponed.task_id) == (1, "")
    waiting = await state_of(store, "1")
    assert waiting.state == pb2.DELIVERY_STATE_PENDING
    assert waiting.next_attempt_time.ToDatetime(tzinfo=UTC) - datetime.now(UTC) < timedelta(
        seconds=6
    )
    assert (waiting.attempts[0].task_id, waiting.attempts[0].problem) == ("task-1", "it fell")
    # An agent without time costs no attempt.
    begun = await store.begin_attempt(postponed, "task-2")
    postponed = await store.postpone(begun, problem="full", not_before=0.0, is_failure=False)
    assert postponed.attempt_count == 1
    assert len((await state_of(store, "1")).attempts) == 1
    begun = await store.begin_attempt(postponed, "task-3")
    reply = message("done", id="r", causation_id="1", is_reply=True)
    (accepted,) = await store.end(begun, pb2.DELIVERY_STATE_HANDLED, replies=[reply])
    assert accepted.envelope.envelope_id == "r"
    ended = await state_of(store, "1")
    assert (ended.state, ended.attempt_count) == (pb2.DELIVERY_STATE_HANDLED, 2)
    assert [each.task_id for each in ended.attempts] == ["task-1", "task-3"]
    assert await find(store, causation_id="1") == ["r"]
    # A late call changes nothing.
    with pytest.raises(FencedError):
        await store.end(begun, pb2.DELIVERY_STATE_DEAD)
    with pytest.raises(FencedError):
        await store.begin_attempt(begun, "task-4")
    assert (await state_of(store, "1")).state == pb2.DELIVERY_STATE_HANDLED


async def test_an_attempt_that_was_begun_is_continued_after_a_restart(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        await store.accept([message("a", "x", id="1"), message("b", "x", id="2")])
        first, second = await Reader(store).take(2)
        await store.begin_attempt(first, "task-1")
        await store.end(second, pb2.DELIVERY_STATE_HANDLED)
    async with open_store() as store:
        (again,) = await Reader(store).take(1)
        assert (again.key, again.task_id, again.attempt_count) == (first.key, "task-1", 1)
        await store.end(again, pb2.DELIVERY_STATE_HANDLED)
        assert (await state_of(store, "1")).state == pb2.DELIVERY_STATE_HANDLED


async def test_deliveries_of_a_conversation_come_in_order(store: MessageStore) -> None:
    low, high = pb2.ENVELOPE_PRIORITY_LOW, pb2.ENVELOPE_PRIORITY_HIGH
    priorities = [low, high, 0, low, high, high]
    await store.accept(
        [
            message(f"{n}", "x", correlation_id="c", priority=priority)
            for n, priority in enumerate(priorities)
        ]
    )
    taken = await Reader(store).take(len(priorities))
    assert [each.envelope.text for each in taken] == ["0", "1", "2", "3", "4", "5"]


async def test_what_one_agent_leaves_delays_no_other_and_nothing_urgent(
    store: MessageStore,
) -> None:
    await store.accept([message(f"{n}", "away") for n in range(QUEUE_LIMIT - 10)])
    await store.accept([message("b", "here", id="b")])
    urgent = message("u", "away", id="u", priority=pb2.ENVELOPE_PRIORITY_HIGH)
    await store.accept([urgent])
    missing = {"b", "u"}
    count = 0
    async with asyncio.timeout(WAIT_S):
        async for batch in store.deliveries():
            missing -= {each.key.envelope_id for each in batch}
            count += len(batch)
            if not missing:
                break
    # The rest stays in the store.
    assert count < QUEUE_LIMIT / 2


async def test_more_deliveries_come_as_others_end(store: MessageStore) -> None:
    total = 1_000
    await store.accept([message(f"{n}", "x") for n in range(total)])
    seen: list[str] = []
    async with asyncio.timeout(WAIT_S):
        async for batch in store.deliveries():
            for each in batch:
                seen.append(each.envelope.text)
                await store.end(each, pb2.DELIVERY_STATE_HANDLED)
            if len(seen) == total:
                break
    assert seen == [f"{n}" for n in range(total)]


async def test_dead_letters_are_found_and_delivered_again(store: MessageStore) -> None:
    await store.accept([message("a", "x", "y", id="1"), message("b", "x", id="2")])
    reader = Reader(store)
    for each in await reader.take(3):
        is_dead = each.key.recipient == "x"
        state = pb2.DELIVERY_STATE_DEAD if is_dead else pb2.DELIVERY_STATE_HANDLED
        begun = await store.begin_attempt(each, "task")
        await store.end(begun, state, problem="bad")
    assert await find(store, states=[pb2.DELIVERY_STATE_DEAD]) == ["2", "1"]
    assert await store.redrive("other", EnvelopeFilter()) == 0
    assert await store.redrive("acme", EnvelopeFilter(envelope_id="1")) == 1
    (again,) = await reader.take(1)
    assert (again.key.envelope_id, again.key.recipient, again.attempt_count) == ("1", "x", 0)
    begun = await store.begin_attempt(again, "task-2")
    await store.end(begun, pb2.DELIVERY_STATE_HANDLED)
    stored = await store.get("acme", "1")
    assert {each.state for each in stored.deliveries} == {pb2.DELIVERY_STATE_HANDLED}
    # Its history stays.
    assert [each.task_id for each in stored.deliveries[0].attempts] == ["task", "task-2"]


async def test_messages_are_found_by_each_condition(store: MessageStore) -> None:
    old = datetime.now(UTC) - timedelta(days=2)
    await store.accept(
        [
            message("a", "x", id="1", created=old),
            message("b", "y", id="2", room="den", correlation_id="1", causation_id="1"),
            message("c", id="3", type="other", room="den"),
            message("d", "x", id="4", account="other"),
        ]
    )
    yesterday = EnvelopeFilter()
    yesterday.end_time.FromDatetime(datetime.now(UTC) - timedelta(days=1))
    since = EnvelopeFilter()
    since.start_time.CopyFrom(yesterday.end_time)
    assert await find(store) == ["3", "2", "1"]
    assert await find(store, correlation_id="1") == ["2", "1"]
    assert await find(store, causation_id="1") == ["2"]
    assert await find(store, room="den") == ["3", "2"]
    assert await find(store, room="den", type="note") == ["2"]
    assert await find(store, recipient="y") == ["2"]
    assert await find(store, recipient="user:bob") == ["3"]
    assert await find(store, participant="x") == ["1"]
    assert await find(store, participant="user:ann") == ["3", "2", "1"]
    assert await find(store, states=[pb2.DELIVERY_STATE_PENDING]) == ["2", "1"]
    assert await find(store, states=[pb2.DELIVERY_STATE_DEAD]) == []
    assert await find(store, envelope_id="4") == []
    # A time of the contract may be further away than a store can count.
    long_ago, never = EnvelopeFilter(), EnvelopeFilter()
    long_ago.start_time.FromDatetime(datetime(1, 1, 1, tzinfo=UTC))
    never.start_time.FromDatetime(datetime(9999, 1, 1, tzinfo=UTC))
    times: tuple[tuple[EnvelopeFilter, list[str]], ...]
    times = ((yesterday, ["1"]), (since, ["3", "2"]), (long_ago, ["3", "2", "1"]), (never, []))
    for query, expected in times:
        page = await store.read_page("acme", query, page_size=9)
        assert [each.envelope.envelope_id for each in page.messages] == expected


async def test_pages_are_complete_although_messages_come_and_go(store: MessageStore) -> None:
    await store.accept([message(f"{n}", id=f"{n}") for n in range(10)])
    query = EnvelopeFilter(type="note")
    first = await store.read_page("acme", query, page_size=4)
    await store.accept([message("new", id="new")])
    await store.purge("acme", EnvelopeFilter(envelope_id="8"))
    rest = await store.read_page("acme", query, page_size=9, page_token=first.next_page_token)
    found = [stored.envelope.text for page in (first, rest) for stored in page.messages]
    assert found == [f"{n}" for n in range(9, -1, -1)]
    assert not rest.next_page_token
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await store.read_page("other", query, page_size=4, page_token=first.next_page_token)


async def test_watches_yield_what_comes_and_what_ends(store: MessageStore) -> None:
    (first,) = await store.accept([message("a", "x", id="1", room="den")])
    query = EnvelopeFilter(room="den")
    async with (
        asyncio.timeout(WAIT_S),
        aclosing(store.watch("acme", query)) as new,
        aclosing(store.watch("acme", query, after_position=0, with_deliveries=True)) as changes,
    ):
        assert (await anext(new))[0] == []
        stored, position = await anext(changes)
        assert [each.envelope.envelope_id for each in stored] == ["1"]
        assert position == first.position
        await store.accept([message("b", id="2"), message("c", id="3", room="den")])
        assert [each.envelope.envelope_id for each in (await anext(new))[0]] == ["3"]
        assert [each.envelope.envelope_id for each in (await anext(changes))[0]] == ["3"]
        (delivery,) = await Reader(store).take(1)
        await store.end(delivery, pb2.DELIVERY_STATE_DEAD, problem="bad")
        (changed,) = (await anext(changes))[0]
        assert changed.deliveries[0].state == pb2.DELIVERY_STATE_DEAD
    async with aclosing(store.watch("other", query, after_position=0)) as others:
        assert (await anext(others))[0] == []


@pytest.mark.parametrize("with_deliveries", [False, True])
async def test_a_watch_after_a_position_that_was_lost_continues(
    store: MessageStore, *, with_deliveries: bool
) -> None:
    """A file from a backup, or a standby, lacks the last messages that a reader has seen."""
    (first,) = await store.accept([message("a", id="1", room="den")])
    watch = store.watch(
        "acme",
        EnvelopeFilter(room="den"),
        after_position=first.position + 1000,
        with_deliveries=with_deliveries,
    )
    async with asyncio.timeout(WAIT_S), aclosing(watch) as batches:
        seen = {each.envelope.envelope_id for each in (await anext(batches))[0]}
        await store.accept([message("b", id="2", room="den")])
        while "2" not in seen:
            seen |= {each.envelope.envelope_id for each in (await anext(batches))[0]}
    assert seen <= {"1", "2"}


async def test_a_purge_keeps_what_is_not_handled_and_an_id_is_not_used_again(
    store: MessageStore,
) -> None:
    await store.accept([message("a", "x", id="1"), message("b", id="2")])
    assert await store.purge("acme", EnvelopeFilter(type="note")) == 1
    assert await find(store) == ["1"]
    with pytest.raises(InvalidArgumentError, match="'2' was used for a deleted message"):
        await store.accept([message("b", id="2")])
    (delivery,) = await Reader(store).take(1)
    await store.end(delivery, pb2.DELIVERY_STATE_HANDLED)
    assert await store.purge("acme", EnvelopeFilter(type="note")) == 1
    (later,) = await store.accept([message("c", id="3")])
    assert later.position > delivery.position


async def test_old_messages_are_deleted_unless_they_wait(store: MessageStore) -> None:
    old = datetime.now(UTC) - timedelta(days=40)
    await store.accept(
        [
            message("a", "x", id="1", created=old),
            message("b", id="2", created=old),
            message("c", id="3"),
        ]
    )
    before = (datetime.now(UTC) - timedelta(days=30)).timestamp()
    assert await store.remove_old(before=before) == 1
    assert await find(store) == ["3", "1"]


async def test_rooms_last_and_each_change_is_one_notice(open_store: OpenStore) -> None:
    async with open_store() as store:
        for notice in ("n1", "n2"):
            room = await store.join("acme", "den", "x", message("join", id=notice, room="den"))
        assert list(room.members) == ["x"]
        await store.join("acme", "den", "user:ann", message("join", "x", id="n3", room="den"))
        assert not (await store.get_room("acme", "attic")).members
    async with open_store() as store:
        assert [(room.name, list(room.members)) for room in await store.list_rooms("acme")] == [
            ("den", ["user:ann", "x"])
        ]
        assert await store.list_rooms("other") == []
        for notice in ("n4", "n5"):
            room = await store.leave("acme", "den", "x", message("leave", id=notice, room="den"))
        assert list(room.members) == ["user:ann"]
        assert await find(store, room="den") == ["n4", "n3", "n1"]


async def test_agents_are_remembered(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.add_agents(["x", "y"])
        await store.add_agents(["y"])
    async with open_store() as store:
        assert await store.list_agents() == {"x", "y"}


async def test_many_writers_at_once_get_one_order(store: MessageStore) -> None:
    groups = [[message(f"{n}", "x") for n in range(5)] for _ in range(40)]
    async with asyncio.TaskGroup() as writers:
        writes = [writers.create_task(store.accept(group)) for group in groups]
    positions = [[stored.position for stored in write.result()] for write in writes]
    assert all(group == sorted(group) for group in positions)
    assert len({position for group in positions for position in group}) == 200
    assert len(await Reader(store).take(200)) == 200
