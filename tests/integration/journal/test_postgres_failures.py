"""Journals in PostgreSQL while the server dies, connections are lost and takeovers race commits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from harness.journal.builders import TASK, append, created, group, row, stored
from harness.journal.postgres_server import PostgresServer, new_database
from trunkline.core.backoff import Backoff
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.store import JournalStore

LIMIT = 2**30
PATIENCE_S = 60.0
_KILLS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.remove()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with new_database() as found:
        yield found


@pytest.fixture
async def catalog(url: str) -> AsyncIterator[PostgresCatalog]:
    async with PostgresDatabase(url) as database:
        yield PostgresCatalog(database)


@pytest.fixture
async def catalog_of_server(server: PostgresServer) -> AsyncIterator[PostgresCatalog]:
    """The catalog on the server that a test kills."""
    async with PostgresDatabase(server.url) as database:
        yield PostgresCatalog(database)


async def poll(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is true."""
    backoff = Backoff(first_s=0.001, limit_s=0.05)
    async with asyncio.timeout(PATIENCE_S):
        while not await ask():
            await backoff.pause()


async def commits(store: JournalStore, sequence: int) -> bool:
    """Commit an event; return False if the store has lost its journal."""
    try:
        await store.commit(group(stored([append("a", "x")], sequence)))
    except FencedError:
        return False
    return True


async def count_batches(store: JournalStore) -> int:
    return len(await store.read(TASK, 0, limit_bytes=LIMIT))


async def test_commits_wait_while_the_server_is_killed_and_started_and_none_is_lost_or_doubled(
    server: PostgresServer, catalog_of_server: PostgresCatalog
) -> None:
    catalog = catalog_of_server
    store = await catalog.open("killed")
    await store.commit(group(stored([created()], 1), made=[row()]))
    written = 1
    progress: asyncio.Queue[int] = asyncio.Queue(1)

    async def write() -> None:
        nonlocal written
        backoff = Backoff(first_s=0.001, limit_s=0.05)
        while written < 20 * (_KILLS + 1):
            batch = stored([append("a", f"{written + 1}")], written + 1)
            try:
                await store.commit(group(batch))
            except JournalUnavailableError:
                # Nothing is stored: the server refused it, or could not be reached.
                await backoff.pause()
                continue
            written += 1
            if written % 20 == 0:
                await progress.put(written)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        for _ in range(_KILLS):
            await progress.get()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
    assert await count_batches(store) == written
    await store.close()


async def test_a_commit_whose_answer_is_lost_is_stored_once(
    url: str, catalog: PostgresCatalog
) -> None:
    store = await catalog.open("cut")
    await store.commit(group(stored([created()], 1), made=[row()]))
    async with AsyncExitStack() as stack:
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        for sequence in range(2, 12):
            # The commit waits for this lock, and its connection is cut while it waits.
            locked = other.transaction()
            await locked.start()
            await other.execute("LOCK TABLE events IN SHARE MODE")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(store.commit(group(stored([append("a", "x")], sequence))))
                await end_waiting_backend(other)
                await locked.rollback()
    assert await count_batches(store) == 11
    await store.close()


async def test_a_database_that_has_lost_commits_loses_the_journal(
    url: str, catalog: PostgresCatalog
) -> None:
    """After a failover to an asynchronous standby, the host has events that the database lacks."""
    store = await catalog.open("behind")
    await store.commit(group(stored([created()], 1), made=[row()]))
    assert await commits(store, 2)
    async with AsyncExitStack() as stack:
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        await other.execute("DELETE FROM events WHERE sequence = 2")
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE '%INSERT INTO events%' AND pid <> pg_backend_pid()"
        )
    assert not await commits(store, 3)
    assert await count_batches(store) == 1
    await store.close(for_takeover=True)
    again = await catalog.take_over("behind")
    assert again.epoch == store.epoch + 1
    assert await commits(again, 2)
    await again.close()


async def end_waiting_backend(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Cut the connection of the commit that waits for a lock."""
    query = (
        "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO events%') AS ended"
    )
    await poll(lambda: connection.fetchval(query))


async def test_a_commit_is_before_a_takeover_or_refused(url: str, catalog: PostgresCatalog) -> None:
    async with PostgresDatabase(url) as other:
        catalogs = [catalog, PostgresCatalog(other)]
        store = await catalogs[0].open("raced")
        await store.commit(group(stored([created()], 1), made=[row()]))
        sequence = 1
        for attempt in range(30):
            await store.renew_lease(0.0)
            async with asyncio.TaskGroup() as tasks:
                committing = tasks.create_task(commits(store, sequence + 1))
                for _ in range(attempt % 5):
                    await asyncio.sleep(0)
                taking = tasks.create_task(catalogs[1].take_over("raced"))
            taken = taking.result()
            seen = await count_batches(taken)
            is_stored = committing.result()
            assert seen == sequence + is_stored
            sequence = seen
            with pytest.raises(FencedError):
                await store.renew_lease(10.0)
            await store.close()
            store = taken
            catalogs.reverse()
        await store.close()


async def test_no_journal_is_an_orphan_right_after_the_database_was_away(
    server: PostgresServer, catalog_of_server: PostgresCatalog
) -> None:
    catalog = catalog_of_server
    store = await catalog.open("alive")
    await store.renew_lease(0.5)
    await asyncio.to_thread(server.kill)
    with pytest.raises(JournalUnavailableError):
        await catalog.find_orphans()
    await asyncio.to_thread(server.start)
    # The lease is over, because nobody could renew it.
    assert [orphan.name for orphan in await catalog.find_orphans()] == []
    await poll(catalog.find_orphans)
    await store.close()
