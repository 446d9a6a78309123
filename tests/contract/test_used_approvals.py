"""The conformance suite of used approvals: an approval allows one call, over all tool adapters."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg
import pytest

from harness.journal.postgres_server import CuttableProxy, new_database
from harness.polling import poll
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.postgres.small_files import PostgresFiles
from trunkline.errors import Code, JournalUnavailableError
from trunkline.tools.used_approvals import (
    CONTINUATION_RETENTION,
    RETENTION,
    PostgresUsedApprovals,
    SqliteUsedApprovals,
    UsedApprovals,
)

# Opens the records as a further tool adapter, with their retentions.
OpenApprovals: TypeAlias = Callable[[timedelta, timedelta], UsedApprovals]

HOUR = timedelta(hours=1)
# A record is too old as soon as it is written.
NONE = timedelta(0)


def open_sqlite(folder: Path, retention: timedelta, continuations: timedelta) -> UsedApprovals:
    return SqliteUsedApprovals(folder, retention=retention, continuation_retention=continuations)


@pytest.fixture(params=["sqlite", "postgres"])
async def opening(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenApprovals]:
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            yield lambda *retentions: open_sqlite(tmp_path, *retentions)
            return
        url = await stack.enter_async_context(new_database())

        def open_postgres(retention: timedelta, continuations: timedelta) -> UsedApprovals:
            # Each adapter has a connection of its own, as on a machine of its own.
            database = PostgresDatabase(url)
            stack.push_async_exit(database)
            return PostgresUsedApprovals(
                PostgresFiles(database), retention=retention, continuation_retention=continuations
            )

        yield open_postgres


@pytest.fixture
def open_adapter(opening: OpenApprovals) -> Callable[[], UsedApprovals]:
    return lambda: opening(RETENTION, CONTINUATION_RETENTION)


async def run_all(calls: Sequence[Coroutine[Any, Any, bool]]) -> list[bool]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


async def test_of_many_adapters_one_uses_an_approval(
    open_adapter: Callable[[], UsedApprovals],
) -> None:
    adapters = [open_adapter() for _ in range(4)]
    for approval in map(str, range(20)):
        used = await run_all([adapter.use(approval) for adapter in adapters * 2])
        assert sorted(used) == [False] * 7 + [True]
    assert not await open_adapter().use("7")


async def test_of_many_adapters_one_continues_a_call(
    open_adapter: Callable[[], UsedApprovals],
) -> None:
    adapters = [open_adapter() for _ in range(4)]
    for digest in map(str, range(10)):
        await adapters[0].allow_continuation(digest)
        await adapters[1].allow_continuation(digest)
        used = await run_all([adapter.use_continuation(digest) for adapter in adapters * 2])
        assert sorted(used) == [False] * 7 + [True]
    assert not await adapters[0].use_continuation("of no call")


async def test_a_continuation_allows_no_use_of_its_approval(
    open_adapter: Callable[[], UsedApprovals],
) -> None:
    adapter = open_adapter()
    assert await adapter.use("digest")
    await adapter.allow_continuation("digest")
    assert not await adapter.use("digest")
    assert await adapter.use_continuation("digest")


async def test_old_records_are_deleted(opening: OpenApprovals) -> None:
    adapter, strict = opening(HOUR, HOUR), opening(NONE, HOUR)
    assert await adapter.use("a")
    await adapter.allow_continuation("a")
    assert not await adapter.use("a")
    assert await strict.use("a")
    # Each kind of record has a retention of its own.
    assert await strict.use_continuation("a")


async def test_a_question_that_is_too_old_is_not_continued(opening: OpenApprovals) -> None:
    adapter, strict = opening(HOUR, HOUR), opening(HOUR, NONE)
    for digest in "ab":
        await adapter.allow_continuation(digest)
    assert await adapter.use_continuation("a")
    assert not await strict.use_continuation("b")


async def test_without_the_database_nothing_is_allowed() -> None:
    async with PostgresDatabase("postgresql://nobody@127.0.0.1:1/none") as database:
        adapter = PostgresUsedApprovals(PostgresFiles(database))
        with pytest.raises(JournalUnavailableError) as failure:
            await adapter.use("a")
        assert failure.value.code is Code.UNAVAILABLE


async def test_an_approval_whose_answer_was_lost_is_used_by_its_own_call() -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database())
        port = urlsplit(url).port
        assert port is not None
        proxy = await stack.enter_async_context(CuttableProxy(port))
        through_proxy = url.replace(f":{port}/", f":{proxy.port}/")
        database = await stack.enter_async_context(PostgresDatabase(through_proxy))
        adapter = PostgresUsedApprovals(PostgresFiles(database))
        await adapter.allow_continuation("a")
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        for use in (adapter.use, adapter.use_continuation):
            locked = other.transaction()
            await locked.start()
            await other.execute("SELECT 1 FROM trunkline_small_files FOR UPDATE")
            await other.execute(
                "INSERT INTO trunkline_small_files VALUES ('used-approvals/a', '') "
                "ON CONFLICT DO NOTHING"
            )
            async with asyncio.TaskGroup() as tasks:
                using = tasks.create_task(use("a"))
                await poll(lambda: count_waiting(other), lambda count: count == 1)
                # The server does not notice, and the statement goes on.
                proxy.cut()
                await poll(lambda: count_waiting(other), lambda count: count == 2)
                await locked.rollback()
            assert using.result()
            assert not await use("a")


async def count_waiting(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """Return the number of statements that wait for locks."""
    # In a transaction, the view does not change.
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    count: int = await connection.fetchval(query)
    return count
