"""Journals in PostgreSQL while the server dies, connections are lost and takeovers race commits."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from operator import methodcaller
from types import SimpleNamespace
from typing import Literal
from urllib.parse import urlsplit

import asyncpg
import pytest

from harness.journal.builders import TASK, append, created, group, row, stored
from harness.journal.postgres_server import CuttableProxy, PostgresServer, new_database
from harness.polling import wait_for
from trunkline.conversations.postgres import open_postgres_memory
from trunkline.conversations.store import ConversationKey, StoredCheckpoint, ThreadKey
from trunkline.core import backoff as backoff_module
from trunkline.core.backoff import Backoff
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.postgres import database as database_module
from trunkline.errors import FencedError, JournalUnavailableError, JournalUnusableError
from trunkline.journal.events import parse_header
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.postgres.lease_clock import read_lease_clock
from trunkline.journal.store import JournalStore, SubmissionKey

LIMIT = 2**30
PATIENCE_S = 60.0
_KILLS = 3
# More than fit into a file of 17 MiB, of 1 MiB each.
_LARGE_COMMITS = 60
CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


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
            await other.execute("LOCK TABLE trunkline_events IN SHARE MODE")
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
        await other.execute("DELETE FROM trunkline_events WHERE sequence = 2")
        await other.execute("UPDATE trunkline_journals SET writes = writes - 1")
    with pytest.raises(FencedError):
        await store.renew_lease(10.0)
    assert not await commits(store, 3)
    assert await count_batches(store) == 1
    await store.close(for_takeover=True)
    again = await catalog.take_over("behind")
    assert again.epoch == store.epoch + 1
    assert await commits(again, 2)
    await again.close()


async def end_waiting_backend(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Cut the connection of the commit that waits for a lock."""
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    query = (
        "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO trunkline_events%') AS ended"
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


async def test_a_late_close_of_an_old_owner_does_not_release_the_journal(
    url: str, catalog: PostgresCatalog
) -> None:
    store = await catalog.open("late")
    await store.renew_lease(0.0)
    async with AsyncExitStack() as stack:
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        locked = other.transaction()
        await locked.start()
        await other.execute("SELECT 1 FROM trunkline_leases FOR UPDATE")
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(catalog.take_over("late"))
            await poll(lambda: count_waiting(other))
            tasks.create_task(store.close())
            await poll(lambda: count_waiting(other, at_least=2))
            await locked.rollback()
    taken = taking.result()
    assert taken.epoch > store.epoch
    assert await catalog.is_in_use("late")
    with pytest.raises(JournalUnavailableError, match="has journal 'late'"):
        await catalog.open("late")
    await taken.close()
    again = await catalog.open("late")
    # No two owners have one epoch.
    assert again.epoch > taken.epoch
    await again.close()


async def test_a_retry_waits_for_an_attempt_that_still_runs_in_the_server(url: str) -> None:
    parts = urlsplit(url)
    assert parts.port is not None
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(CuttableProxy(parts.port))
        through_proxy = url.replace(f":{parts.port}/", f":{proxy.port}/")
        database = await stack.enter_async_context(PostgresDatabase(through_proxy))
        store = await PostgresCatalog(database).open("cut")
        await store.commit(group(stored([created()], 1), made=[row()]))
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        for sequence in (2, 3):
            locked = other.transaction()
            await locked.start()
            # The attempt has passed the fence, and waits for the end of this transaction.
            await other.execute("INSERT INTO trunkline_events VALUES ($1, $2, '')", TASK, sequence)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(store.commit(group(stored([append("a", "x")], sequence))))
                await poll(lambda: count_waiting(other))
                # The server does not notice, and the attempt goes on.
                proxy.cut()
                await poll(lambda: count_waiting(other, at_least=2))
                await locked.rollback()
            assert await count_batches(store) == sequence
        await store.close()


async def test_a_commit_counts_only_once_the_synchronous_standby_has_it() -> None:
    server = await asyncio.to_thread(PostgresServer, "fsync=off")
    async with AsyncExitStack() as stack:
        stack.callback(server.remove)
        database = await stack.enter_async_context(PostgresDatabase(server.url))
        catalog = PostgresCatalog(database)
        store = await catalog.open("synchronous")
        await store.commit(group(stored([created()], 1), made=[row()]))
        other = await asyncpg.connect(server.url)
        stack.push_async_callback(other.close)
        await other.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
        await other.execute("SELECT pg_reload_conf()")
        await poll(partial(waits_for_standby, other))
        async with asyncio.TaskGroup() as tasks:
            committing = tasks.create_task(commits(store, 2))
            for cancel in (CANCEL, TERMINATE):
                await poll(partial(other.fetchval, cancel))
            # It is stored, but the standby does not have it.
            await poll(lambda: other.fetchval("SELECT count(*) = 2 FROM trunkline_events"))
            assert not committing.done()
            # A renewal that is not replicated has failed.
            renewing = tasks.create_task(is_renewed(store))
            await poll(partial(other.fetchval, CANCEL + " AND query LIKE '%lease_clock%'"))
            assert not await renewing
            # The close does not wait for the standby, and the commit is not acknowledged.
            await store.close()
            assert not await committing
        await other.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await other.execute("SELECT pg_reload_conf()")
        await poll(catalog.find_orphans)
        again = await catalog.take_over("synchronous")
        assert await count_batches(again) == 2
        assert await commits(again, 3)
        await again.close()


async def waits_for_standby(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    """Return whether commits wait, which begins some time after the reload."""
    try:
        await connection.execute("SELECT pg_logical_emit_message(true, 'a', 'b')", timeout=0.3)
    except TimeoutError:
        return True
    return False


async def is_renewed(store: JournalStore) -> bool:
    try:
        await store.renew_lease(10.0)
    except JournalUnavailableError:
        return False
    return True


async def count_waiting(
    connection: "asyncpg.Connection[asyncpg.Record]", *, at_least: int = 1
) -> bool:
    """Return whether so many statements wait for locks."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    # In a transaction, the view does not change.
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    return bool(await connection.fetchval(query) >= at_least)


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
    async def is_orphan() -> bool:
        return "alive" in [orphan.name for orphan in await catalog.find_orphans()]

    assert not await is_orphan()
    await poll(is_orphan)
    await store.close()


async def test_leases_do_not_end_while_the_database_is_frozen(
    server: PostgresServer, catalog_of_server: PostgresCatalog
) -> None:
    catalog = catalog_of_server
    store = await catalog.open("frozen")
    await store.renew_lease(1.0)
    async with asyncio.TaskGroup() as tasks:
        await asyncio.to_thread(server.freeze)
        finding = tasks.create_task(catalog.find_orphans())
        # Longer than the lease. A frozen server reports nothing, so no event says that it is over.
        await asyncio.sleep(2.0)
        await asyncio.to_thread(server.thaw)
    assert "frozen" not in [orphan.name for orphan in finding.result()]
    assert await catalog.is_in_use("frozen")
    await store.renew_lease(1.0)
    await store.close()


async def test_a_process_that_starts_after_an_outage_takes_no_journal_of_a_living_host(
    url: str, catalog: PostgresCatalog
) -> None:
    store = await catalog.open("alive")
    await store.renew_lease(0.5)
    async with PostgresDatabase(url) as database:
        # Nobody has reached the database for far longer than the lease.
        await database.fetch(
            "UPDATE trunkline_lease_clock SET read_at = read_at - interval '1 hour'"
        )
        fresh = PostgresCatalog(database)
        assert await fresh.find_orphans() == []
        for claim in (fresh.open, fresh.take_over):
            with pytest.raises(JournalUnavailableError, match="its lease holds"):
                await claim("alive")
        # The owner has gone, too.
        await poll(fresh.find_orphans)
        await (await fresh.take_over("alive")).close()
    with pytest.raises(FencedError):
        await store.renew_lease(0.5)
    await store.close()


async def test_a_process_that_freezes_in_a_renewal_does_not_hold_its_journal(
    url: str, catalog: PostgresCatalog
) -> None:
    store = await catalog.open("frozen")
    await store.renew_lease(0.0)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(PostgresDatabase(url))
        frozen = await stack.enter_async_context(AsyncExitStack())
        connection = await frozen.enter_async_context(database.transaction())
        await connection.execute("SELECT 1 FROM trunkline_journals FOR KEY SHARE")
        with pytest.raises(JournalUnavailableError, match="lock timeout"):
            await catalog.take_over("frozen")

        async def is_taken() -> bool:
            try:
                taken = await catalog.take_over("frozen")
            except JournalUnavailableError:
                return False
            await taken.close()
            return True

        await poll(is_taken)
        with pytest.raises(JournalUnavailableError):
            await frozen.aclose()


async def test_a_key_that_is_used_again_during_a_renewal_is_kept(
    url: str, catalog: PostgresCatalog
) -> None:
    store = await catalog.open("keys")
    batch = stored([created()], 1)
    await store.commit(
        replace(group(batch, made=[row()]), keys=[SubmissionKey("key", "hash", TASK, 1)])
    )
    async with AsyncExitStack() as stack:
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        used = other.transaction()
        await used.start()
        await other.execute("UPDATE trunkline_submission_keys SET expires_ns = 9000000000000000000")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(store.renew_lease(10.0))
            await poll(lambda: count_waiting(other))
            await used.commit()
    assert "key" in await store.find_keys(["key"], now_ns=2)
    await store.close()


async def test_a_read_ends_before_events_that_are_deleted_meanwhile(url: str) -> None:
    class Pausing(PostgresDatabase):
        """A database in which something happens after the first page of events."""

        on_page: Callable[[], Awaitable[object]] | None = None

        async def fetch(self, query: str, *values: object) -> list[asyncpg.Record]:
            rows = await super().fetch(query, *values)
            if "SELECT sequence, body" in query and self.on_page is not None:
                happen, self.on_page = self.on_page, None
                await happen()
            return rows

    async with Pausing(url) as database:
        store = await PostgresCatalog(database).open("pages")
        await store.commit(group(stored([created()], 1), made=[row()]))
        for sequence in range(2, 151):
            await store.commit(group(stored([append("a", "x")], sequence)))
        database.on_page = partial(store.delete_events, [TASK], limit=100)
        batches = await store.read(TASK, 0, limit_bytes=LIMIT)
        sequences = [parse_header(batch).first_sequence for batch in batches]
        assert sequences
        assert sequences == list(range(1, len(sequences) + 1))
        await store.close()


async def test_processes_that_start_at_once_on_an_empty_database_share_its_tables(
    url: str,
) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(PostgresDatabase(url)) for _ in range(8)]
        async with asyncio.TaskGroup() as starts:
            names = [
                starts.create_task(PostgresCatalog(database).list_names()) for database in databases
            ]
    assert [name.result() for name in names] == [frozenset()] * 8


async def test_statements_are_not_prepared_after_a_pooler_has_lost_one(url: str) -> None:
    async with PostgresDatabase(url) as database:
        for _ in range(2):
            assert await database.fetchrow("SELECT 1")
            # A pooler in transaction mode that does not know prepared statements does this.
            await database.run(lambda connection: connection.execute("DEALLOCATE ALL"))
        assert await database.fetchrow("SELECT 1")
        store = await PostgresCatalog(database).open("pooled")
        assert await commits(store, 1)
        await store.close()


async def test_statements_are_not_prepared_after_a_pooler_has_mixed_up_their_names(
    url: str,
) -> None:
    async with PostgresDatabase(url) as database:
        ((name,),) = await database.fetch("SELECT name FROM pg_prepared_statements")
        number = int(name.strip("_").split("_")[-1], 16)
        for later in range(number + 1, number + 20):
            # Another process at the same connection of a pooler does this.
            other = " ".join(("PREPARE", f"__asyncpg_stmt_{later:x}__", "AS SELECT 1"))
            await database.run(methodcaller("execute", other))
        assert await database.fetchrow("SELECT 2")
        store = await PostgresCatalog(database).open("pooled")
        assert await commits(store, 1)
        await store.close()


async def test_statements_that_conflict_run_again(url: str) -> None:
    serializable = f"{url}&default_transaction_isolation=serializable"
    async with AsyncExitStack() as stack:
        databases = [
            await stack.enter_async_context(PostgresDatabase(serializable)) for _ in range(4)
        ]
        await PostgresCatalog(databases[0]).list_names()
        async with asyncio.TaskGroup() as tasks:
            readings = [
                tasks.create_task(read_lease_clock(database))
                for database in databases
                for _ in range(10)
            ]
    assert len({reading.result() for reading in readings}) == len(readings)


async def test_a_host_writes_to_the_primary_wherever_it_is_in_the_url(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        primary = await asyncio.to_thread(PostgresServer, "fsync=off")
        stack.callback(primary.remove)
        standby = await asyncio.to_thread(PostgresServer, "fsync=off", primary=primary)
        stack.callback(standby.remove)
        hosts = f"{standby.host}:{standby.port},{primary.host}:{primary.port}"
        database = await stack.enter_async_context(
            PostgresDatabase(f"postgresql://postgres@{hosts}/postgres")
        )
        store = await PostgresCatalog(database).open("first")
        await store.commit(group(stored([created()], 1), made=[row()]))
        await store.close()
        alone = await stack.enter_async_context(PostgresDatabase(standby.url))
        with pytest.raises(JournalUnavailableError, match="none of its hosts accepts writes"):
            await PostgresCatalog(alone).open("second")
        reader = await stack.enter_async_context(
            PostgresDatabase(f"{standby.url}?target_session_attrs=standby")
        )
        assert await reader.fetch("SELECT 1")
        # It may become the primary, so a process waits.
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(alone.wait_until_reachable())
            await wait_for(lambda: "database.awaited" in caplog.text)
            assert not waiting.done()
            await asyncio.to_thread(standby.promote)


async def test_a_server_that_becomes_read_only_is_left_and_used_again_later() -> None:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(PostgresServer, "fsync=off")
        stack.callback(server.remove)
        database = await stack.enter_async_context(PostgresDatabase(server.url))
        store = await PostgresCatalog(database).open("first")
        await store.commit(group(stored([created()], 1), made=[row()]))
        admin = await asyncpg.connect(server.url)
        await set_read_only(admin, "on")
        for ask in (partial(commits, store, 2), partial(store.renew_lease, 10.0)):
            with pytest.raises(JournalUnavailableError, match=r"read-only|accepts writes"):
                await ask()
        await set_read_only(admin, "off")
        assert await commits(store, 2)
        await store.renew_lease(10.0)
        await store.close()
        await admin.close()


async def set_read_only(
    admin: "asyncpg.Connection[asyncpg.Record]", value: Literal["on", "off"]
) -> None:
    """Change the setting of the server; return when the connection knows it."""
    await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await admin.execute("SELECT pg_reload_conf()")

    async def is_set() -> bool:
        shown: str = await admin.fetchval("SHOW default_transaction_read_only")
        return shown == value

    await poll(is_set)


@pytest.mark.parametrize(
    ("user", "options", "problem"),
    [
        ("poor", "", "can't create them .permission denied.*data migrate"),
        ("postgres", "?search_path=nowhere", "can't create them .no schema.*data migrate"),
        ("postgres", "?sslmode=require", "rejected SSL upgrade; let it use TLS"),
    ],
)
async def test_a_database_that_can_not_be_used_is_refused_with_what_to_do(
    server: PostgresServer, user: str, options: str, problem: str
) -> None:
    admin = await asyncpg.connect(server.url)
    await admin.execute("DROP ROLE IF EXISTS poor")
    await admin.execute("CREATE ROLE poor LOGIN")
    await admin.execute("DROP DATABASE IF EXISTS refused")
    await admin.execute("CREATE DATABASE refused")
    await admin.close()
    url = f"postgresql://{user}@{server.host}:{server.port}/refused{options}"
    async with PostgresDatabase(url) as database:
        with pytest.raises(JournalUnusableError, match=problem):
            await PostgresCatalog(database).open("first")


async def test_a_full_disk_refuses_what_does_not_fit_and_loses_nothing(
    server: PostgresServer, catalog_of_server: PostgresCatalog
) -> None:
    task_id = "journal1-full"
    batch = partial(stored, task_id=task_id)
    store = await catalog_of_server.open("full")
    await store.commit(group(batch([created()], 1), made=[row(task_id)]))
    await asyncio.to_thread(server.kill)
    # A file of the write-ahead log has 16 MiB.
    await asyncio.to_thread(server.start, file_limit_bytes=17 * 2**20)
    large = append("a", random.randbytes(2**19).hex())
    written = 1

    async def fill() -> None:
        nonlocal written
        for _ in range(_LARGE_COMMITS):
            await store.commit(group(batch([large], written + 1)))
            written += 1

    with pytest.raises(JournalUnavailableError, match="could not extend file"):
        await fill()
    # What fits is stored.
    await store.renew_lease(10.0)
    await store.commit(group(batch([append("a", "x")], written + 1)))
    with pytest.raises(JournalUnavailableError, match="could not extend file"):
        await store.commit(group(batch([large], written + 2)))
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await store.commit(group(batch([large], written + 2)))
    assert len(await store.read(task_id, 0, limit_bytes=LIMIT)) == written + 2
    await store.close()


async def test_a_server_without_free_connections_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = await asyncio.to_thread(
        PostgresServer, "fsync=off", "max_connections=8", "superuser_reserved_connections=0"
    )
    async with AsyncExitStack() as stack:
        stack.callback(server.remove)
        database = await stack.enter_async_context(PostgresDatabase(server.url))
        store = await PostgresCatalog(database).open("crowded")
        await store.commit(group(stored([created()], 1), made=[row()]))
        others = [await asyncpg.connect(server.url)]
        await take_free_connections(server.url, others)
        # A connection that exists goes on.
        assert await commits(store, 2)
        await others[0].execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND NOT pid = ANY($1::integer[])",
            [each.get_server_pid() for each in others],
        )
        await take_free_connections(server.url, others)
        fresh = await stack.enter_async_context(PostgresDatabase(server.url))
        for ask in (partial(commits, store, 3), partial(fresh.fetch, "SELECT 1")):
            with pytest.raises(JournalUnavailableError, match="too many clients"):
                await ask()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(fresh.wait_until_reachable())
            await wait_for(lambda: "database.awaited" in caplog.messages)
            assert not waiting.done()
            for each in others:
                await each.close()
        assert await commits(store, 3)
        assert await count_batches(store) == 3
        await store.close()


async def take_free_connections(
    url: str, taken: "list[asyncpg.Connection[asyncpg.Record]]"
) -> None:
    """Connect until the server refuses it."""
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            taken.append(await asyncpg.connect(url))


async def test_a_turn_waits_for_its_state_for_as_long_as_the_server_is_away(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = ThreadKey("graph/task")
    saved = StoredCheckpoint("1", None, "msgpack", b"state", b"{}", [])
    async with PostgresDatabase(server.url) as database:
        store = await PostgresCatalog(database).open("patient")
        memory = await open_postgres_memory(database, store.id, store.epoch)
        await memory.checkpoints.put(thread, saved)
        # An hour passes between two looks at the clock.
        looks = 0

        def look() -> float:
            nonlocal looks
            looks += 1
            return looks * 3600.0

        monkeypatch.setattr(backoff_module, "time", SimpleNamespace(monotonic=look))
        await asyncio.to_thread(server.kill)
        with pytest.raises(JournalUnavailableError):
            await memory.conversations.list_tickets(ConversationKey("a", "c", "b"))
        looks = 0
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            found = tasks.create_task(memory.checkpoints.find(thread))
            await wait_for(lambda: looks > 4)
            await asyncio.to_thread(server.start)
        assert found.result() == saved
        await memory.close()
        await store.close()


async def test_a_process_that_is_frozen_between_the_parts_of_a_statement_loses_its_locks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From PostgreSQL 17 on; it does not count as idle in its transaction."""
    limited = database_module._BEGIN_LIMITED.replace("'15s'", "'1s'")
    monkeypatch.setattr(database_module, "_BEGIN_LIMITED", limited)
    async with PostgresDatabase(url) as frozen, PostgresDatabase(url) as other:
        await other.run(lambda each: each.execute("CREATE TABLE t AS SELECT 1 AS x"))
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(frozen.transaction())
            await connection.fetch("SELECT x FROM t FOR UPDATE")
            # The server has parsed this statement, and waits for the rest.
            await connection.prepare("SELECT x + 1 FROM t")
            changed = await other.run(lambda each: each.execute("UPDATE t SET x = 2"))
            assert changed == "UPDATE 1"
            with pytest.raises(JournalUnavailableError):
                await stack.aclose()
