"""The conformance suite of the stores of checkpoints and conversations.

A pair of stores joins by a factory in FACTORIES.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from harness.journal.postgres_server import new_database
from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.postgres import open_postgres_memory
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.conversations.store import (
    ConversationKey,
    StoredCheckpoint,
    StoredState,
    StoredWrite,
    ThreadKey,
    Turn,
)
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.postgres import PostgresCatalog

# Opens the memory of one of the journals of a mesh; several may be open.
OpenMemory: TypeAlias = Callable[[str], Awaitable[AgentMemory]]

THREAD = ThreadKey("graph/task")
SUBGRAPH = ThreadKey("graph/task", "node:1")
OTHER = ThreadKey("graph/task2")
KEY = ConversationKey("math", "context", "account")


async def sqlite_files(folder: Path, _stack: AsyncExitStack) -> OpenMemory:
    async def open_memory(name: str) -> AgentMemory:
        journal = folder / f"{name}.db"
        journal.touch()
        return await open_sqlite_memory(journal)

    return open_memory


async def postgres_database(_folder: Path, stack: AsyncExitStack) -> OpenMemory:
    url = await stack.enter_async_context(new_database())
    database = await stack.enter_async_context(PostgresDatabase(url))
    catalog = PostgresCatalog(database)

    async def open_memory(name: str) -> AgentMemory:
        store = await catalog.open(name)
        memory = await open_postgres_memory(database, store.id, store.epoch)

        async def close() -> None:
            await memory.close()
            await store.close()

        return replace(memory, close=close)

    return open_memory


FACTORIES = {"sqlite": sqlite_files, "postgres": postgres_database}


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
async def open_memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenMemory]:
    async with AsyncExitStack() as stack:
        yield await request.param(tmp_path, stack)


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresDatabase]:
    async with new_database() as url, PostgresDatabase(url) as database:
        yield database


def checkpoint(number: int, body: bytes = b"body", *, step: int = 1) -> StoredCheckpoint:
    parent = f"ff{number - 1:034}" if number > 1 else None
    metadata = json.dumps({"step": step, "writes": "\0"}).encode()
    return StoredCheckpoint(f"ff{number:034}", parent, "msgpack", body, metadata, [])


def write(index: int, body: bytes = b"written", *, task: str = "t", path: str = "") -> StoredWrite:
    return StoredWrite(task, path, index, "channel", "msgpack", body)


async def test_the_latest_checkpoint_and_each_earlier_one_are_found_also_later(
    open_memory: OpenMemory,
) -> None:
    memory = await open_memory("one")
    assert await memory.checkpoints.find(THREAD) is None
    for number in (1, 2, 3):
        await memory.checkpoints.put(THREAD, checkpoint(number))
    await memory.checkpoints.put(THREAD, checkpoint(2, b"again"))
    await memory.close()

    memory = await open_memory("one")
    assert memory.checkpoints.is_durable
    assert await memory.checkpoints.find(THREAD) == checkpoint(3)
    assert await memory.checkpoints.find(THREAD, checkpoint(2).checkpoint_id) == checkpoint(
        2, b"again"
    )
    assert await memory.checkpoints.find(THREAD, checkpoint(4).checkpoint_id) is None
    assert await memory.checkpoints.find(SUBGRAPH) is None
    await memory.close()


async def test_the_latest_checkpoint_is_the_one_with_the_highest_step(
    open_memory: OpenMemory,
) -> None:
    memory = await open_memory("one")
    for number, step in ((3, 9), (2, 10), (4, -1)):
        await memory.checkpoints.put(THREAD, checkpoint(number, step=step))
    assert await memory.checkpoints.find(THREAD) == checkpoint(2, step=10)
    await memory.close()


async def test_writes_belong_to_a_checkpoint_and_are_ordered(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    store = memory.checkpoints
    await store.put(THREAD, checkpoint(1))
    first = checkpoint(1).checkpoint_id
    await store.add_writes(THREAD, first, [write(1, path="b"), write(0, path="b")], replaces=False)
    await store.add_writes(THREAD, first, [write(0, task="s", path="a")], replaces=False)
    await store.put(THREAD, checkpoint(2))
    await store.add_writes(SUBGRAPH, first, [write(5)], replaces=False)

    ordered = [write(0, task="s", path="a"), write(0, path="b"), write(1, path="b")]
    assert await store.find(THREAD, first) == checkpoint(1)._replace(writes=ordered)
    assert await store.find(THREAD) == checkpoint(2)
    await memory.close()


async def test_a_repeated_write_is_kept_or_replaced(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    store = memory.checkpoints
    await store.put(THREAD, checkpoint(1))
    first = checkpoint(1).checkpoint_id
    for body, replaces in ((b"1", False), (b"2", False), (b"3", True)):
        await store.add_writes(THREAD, first, [write(0, body)], replaces=replaces)
        found = await store.find(THREAD)
        assert found is not None
        assert [item.body for item in found.writes] == [b"3" if replaces else b"1"]
    await memory.close()


async def test_a_thread_is_deleted_with_its_subgraphs_and_writes(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    store = memory.checkpoints
    for thread in (THREAD, SUBGRAPH, OTHER):
        for number in range(1, 46):
            await store.put(thread, checkpoint(number))
        await store.add_writes(thread, checkpoint(45).checkpoint_id, [write(0)], replaces=False)
    await store.delete(THREAD.thread_id)

    assert await store.find(THREAD) is None
    assert await store.find(SUBGRAPH) is None
    assert await store.find(OTHER) == checkpoint(45)._replace(writes=[write(0)])
    # Its writes do not come back with a checkpoint of the same id.
    await store.put(THREAD, checkpoint(45))
    assert await store.find(THREAD) == checkpoint(45)
    await memory.close()


async def test_all_journals_share_the_conversations(open_memory: OpenMemory) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    assert await one.conversations.find(KEY) is None
    assert await one.conversations.replace(KEY, StoredState(2, "k", b"one"), known_step=0)
    assert await two.conversations.find(KEY) == StoredState(2, "k", b"one")
    assert await two.conversations.replace(KEY, StoredState(5, "k", b"two"), known_step=2)
    await one.close()
    await two.close()

    one = await open_memory("one")
    assert await one.conversations.find(KEY) == StoredState(5, "k", b"two")
    for name in KEY._fields:
        other = KEY._replace(**{name: "other"})
        assert await one.conversations.find(other) is None
    await one.close()


async def test_a_state_is_replaced_only_if_it_is_known(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    store = memory.conversations
    assert not await store.replace(KEY, StoredState(2, "k", b"b"), known_step=1)
    assert await store.replace(KEY, StoredState(1, "k", b"a"), known_step=0)
    assert not await store.replace(KEY, StoredState(1, "k", b"b"), known_step=0)
    assert not await store.replace(KEY, StoredState(3, "k", b"b"), known_step=2)
    assert await store.find(KEY) == StoredState(1, "k", b"a")
    await memory.close()


async def test_of_concurrent_changes_none_is_lost(open_memory: OpenMemory) -> None:
    memories = [await open_memory(f"journal-{number}") for number in range(3)]

    async def add(memory: AgentMemory, number: int) -> None:
        is_added = False
        while not is_added:
            present = await memory.conversations.find(KEY) or StoredState(0, "k", b"")
            body = present.body + bytes([number])
            state = StoredState(present.step + 1, "k", body)
            await asyncio.sleep(0)
            is_added = await memory.conversations.replace(KEY, state, known_step=present.step)

    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(add(memories[number % 3], number))
    state = await memories[0].conversations.find(KEY)
    assert state is not None
    assert (state.step, sorted(state.body)) == (30, list(range(30)))
    for memory in memories:
        await memory.close()


async def test_tickets_have_places_that_the_turns_of_a_request_share(
    open_memory: OpenMemory,
) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    turns = [
        Turn(KEY, "1", 1, ("p", "q")),
        Turn(KEY, "2", 3),
        Turn(KEY, "3", 1, ("p",)),
        Turn(KEY._replace(context_id="other"), "4", 1),
    ]
    tickets = [await one.conversations.take_ticket(each) for each in turns]
    assert [ticket.is_first for ticket in tickets] == [True, False, True, True]
    assert tickets[0].place == tickets[2].place < tickets[1].place
    # A turn that runs again has the same ticket.
    assert await one.conversations.take_ticket(turns[1]) == tickets[1]
    fifth = await two.conversations.take_ticket(Turn(KEY, "5", 1))
    assert fifth.place > tickets[1].place

    listed = await two.conversations.list_tickets(KEY)
    assert {ticket.turn.task_id for ticket in listed[:2]} == {"1", "3"}
    assert [*listed[2:]] == [tickets[1], fifth]
    assert [t.turn for t in await one.conversations.list_tickets_below("q", "p")] == [turns[0]]
    below = await two.conversations.list_tickets_below("p", "p")
    assert {ticket.turn for ticket in below} == {turns[0], turns[2]}
    assert {t.turn for t in await one.conversations.list_own_tickets()} == set(turns)
    assert [t.turn for t in await two.conversations.list_own_tickets()] == [fifth.turn]
    await one.close()
    await two.close()


async def test_a_removed_ticket_makes_way_and_later_turns_of_its_task_stay(
    open_memory: OpenMemory,
) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    await one.conversations.take_ticket(Turn(KEY, "1", 1))
    await one.conversations.take_ticket(Turn(KEY, "1", 2))
    await two.conversations.take_ticket(Turn(KEY, "2", 1))
    await one.conversations.remove_ticket("1", 1)
    first, second = await two.conversations.list_tickets(KEY)
    assert (first.turn.number, first.is_first, second.is_first) == (2, True, False)
    await one.conversations.remove_ticket("1", 2)
    (ticket,) = await two.conversations.list_tickets(KEY)
    assert (ticket.turn.task_id, ticket.is_first) == ("2", True)
    assert ticket.place == second.place
    await one.close()
    await two.close()


async def test_turns_that_begin_at_once_never_run_at_once(open_memory: OpenMemory) -> None:
    memories = [await open_memory(f"journal-{number}") for number in range(3)]
    running: set[str] = set()
    ran: list[str] = []

    async def run(memory: AgentMemory, number: int) -> None:
        # The turns of one request run together.
        request = f"request-{number // 2}"
        ticket = await memory.order.take_ticket(Turn(KEY, f"task-{number}", 1, (request,)))
        if not ticket.is_first:
            await memory.order.wait(ticket)
        assert running <= {request}
        running.add(request)
        await asyncio.sleep(0.002)
        running.discard(request)
        ran.append(request)
        removal = memory.order.end_turn(f"task-{number}")
        assert removal is not None
        await removal

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for number in range(24):
            group.create_task(run(memories[number % 3], number))
    assert len(ran) == 24
    assert await memories[0].conversations.list_tickets(KEY) == []
    for memory in memories:
        await memory.close()


async def test_a_closed_memory_refuses_calls(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    await memory.checkpoints.put(THREAD, checkpoint(1))
    await memory.close()
    await memory.close()
    with pytest.raises(JournalUnavailableError):
        await memory.checkpoints.put(THREAD, checkpoint(2))
    with pytest.raises(JournalUnavailableError):
        await memory.conversations.replace(KEY, StoredState(1, "k", b""), known_step=0)


async def test_an_owner_that_was_taken_over_writes_nothing(postgres: PostgresDatabase) -> None:
    catalog = PostgresCatalog(postgres)
    frozen = await catalog.open("one")
    theirs = await open_postgres_memory(postgres, frozen.id, frozen.epoch)
    state = StoredState(1, "k", b"")
    await theirs.checkpoints.put(THREAD, checkpoint(1))
    await theirs.conversations.replace(KEY, state, known_step=0)
    await theirs.conversations.take_ticket(Turn(KEY, "task", 1))
    await frozen.close(for_takeover=True)
    taken = await catalog.take_over("one")
    ours = await open_postgres_memory(postgres, taken.id, taken.epoch)
    first = checkpoint(1).checkpoint_id
    for late in (
        theirs.checkpoints.put(THREAD, checkpoint(2)),
        theirs.checkpoints.add_writes(THREAD, first, [write(0)], replaces=True),
        theirs.checkpoints.delete(THREAD.thread_id),
        theirs.conversations.replace(KEY, state._replace(step=2), known_step=1),
        theirs.conversations.replace(KEY._replace(agent="new"), state, known_step=0),
        theirs.conversations.take_ticket(Turn(KEY, "task", 2)),
        theirs.conversations.remove_ticket("task", 1),
    ):
        with pytest.raises(FencedError):
            await late
    assert await ours.checkpoints.find(THREAD) == checkpoint(1)
    assert await ours.conversations.find(KEY) == state
    assert [ticket.turn.number for ticket in await ours.conversations.list_tickets(KEY)] == [1]
    assert await ours.conversations.find(KEY._replace(agent="new")) is None
    await ours.checkpoints.put(THREAD, checkpoint(2))
    assert await ours.checkpoints.find(THREAD) == checkpoint(2)
    await taken.close()


async def test_checkpoints_are_deleted_with_their_journal(postgres: PostgresDatabase) -> None:
    catalog = PostgresCatalog(postgres)
    for name in ("one", "two"):
        store = await catalog.open(name)
        memory = await open_postgres_memory(postgres, store.id, store.epoch)
        await memory.checkpoints.put(THREAD, checkpoint(1))
        await memory.checkpoints.add_writes(
            THREAD, checkpoint(1).checkpoint_id, [write(0)], replaces=False
        )
        await store.close()
    assert await catalog.delete_if_empty("one")
    for table in ("checkpoints", "checkpoint_writes"):
        rows = await postgres.fetch(f"SELECT journal_id FROM trunkline_{table}")  # noqa: S608  ours
        assert [row["journal_id"] for row in rows] == [store.id]


async def test_cleaning_keeps_what_is_new(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    await memory.checkpoints.put(THREAD, checkpoint(1))
    await memory.checkpoints.add_writes(
        THREAD, checkpoint(1).checkpoint_id, [write(0)], replaces=False
    )
    state = StoredState(1, "k", b"state")
    assert await memory.conversations.replace(KEY, state, known_step=0)
    await memory.clean()
    found = await memory.checkpoints.find(THREAD)
    assert found == checkpoint(1)._replace(writes=[write(0)])
    assert await memory.conversations.find(KEY) == state
    await memory.close()


async def test_cleaning_deletes_old_rows_and_no_turn_waits_for_it(
    postgres: PostgresDatabase,
) -> None:
    store = await PostgresCatalog(postgres).open("one")
    memory = await open_postgres_memory(postgres, store.id, store.epoch)
    await memory.checkpoints.put(THREAD, checkpoint(1))
    await memory.checkpoints.put(ThreadKey("task"), checkpoint(1))
    old_key = KEY._replace(context_id="old")
    assert await memory.conversations.replace(old_key, StoredState(1, "k", b""), known_step=0)
    await postgres.fetch("UPDATE trunkline_conversations SET changed = now() - interval '91 days'")
    await postgres.fetch("UPDATE trunkline_checkpoints SET created = now() - interval '8 days'")
    async with asyncio.TaskGroup() as group:
        async with postgres.transaction() as connection:
            # The cleaning waits for this row.
            await connection.fetch("SELECT FROM trunkline_conversations FOR UPDATE")
            cleaning = group.create_task(memory.clean())
            await memory.checkpoints.put(OTHER, checkpoint(1))
            await memory.conversations.take_ticket(Turn(KEY, "task-1", 1))
            assert not cleaning.done()
        await cleaning
    assert await memory.conversations.find(old_key) is None
    assert await memory.checkpoints.find(ThreadKey("task")) is None
    assert await memory.checkpoints.find(THREAD) == checkpoint(1)
    await memory.close()
    await store.close()
