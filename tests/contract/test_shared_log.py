"""A log that processes share keeps its limits, and has each entry once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from harness.journal.postgres_server import new_database
from harness.polling import poll
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.postgres.shared_log import SharedLog, log_schema
from trunkline.core.runtime import run_in_background
from trunkline.errors import JournalUnavailableError

LOG = log_schema("lines")
DAY_S = 24 * 3600.0


@pytest.fixture
async def database() -> AsyncIterator[PostgresDatabase]:
    async with new_database() as url, PostgresDatabase(url) as database:
        yield database


def open_log(
    database: PostgresDatabase, *, size_bytes: int = 1 << 30, age_s: float = DAY_S
) -> SharedLog:
    return SharedLog(database, LOG, size_bytes=size_bytes, age_s=age_s)


async def read_bodies(log: SharedLog) -> list[bytes]:
    return [entry.body for entry in await log.read(0, limit=100_000)]


async def test_all_old_entries_are_deleted_also_if_nothing_is_appended(
    database: PostgresDatabase,
) -> None:
    log = open_log(database)
    for number in range(5):
        await log.append([b"%d" % number] * 700)
    await database.fetch("UPDATE trunkline_lines SET written = written - interval '2 days'")
    await log.append([b"new"])
    async with run_in_background(log.delete_old_entries()):
        await poll(lambda: read_bodies(log), lambda bodies: bodies == [b"new"])
    (head,) = await database.fetch("SELECT size_bytes FROM trunkline_lines_log")
    assert head["size_bytes"] == 3


async def test_a_log_that_is_too_large_loses_its_oldest_entries_only(
    database: PostgresDatabase,
) -> None:
    log = open_log(database, size_bytes=1000)
    for number in range(30):
        await log.append([b"%02d" % number * 50])
        bodies = await read_bodies(log)
        assert [body[:2] for body in bodies] == [
            b"%02d" % each for each in range(max(0, number - 9), number + 1)
        ]
    # One entry that is larger than the limit is in the log until the next one.
    await log.append([b"x" * 5000])
    assert await read_bodies(log) == [b"x" * 5000]
    await log.append([b"y"])
    assert await read_bodies(log) == [b"y"]


async def test_entries_are_stored_once_if_the_answer_is_lost_while_another_try_runs(
    database: PostgresDatabase,
) -> None:
    log = open_log(database)
    await log.append([b"a"])
    repeated = SharedLog(database, LOG, size_bytes=1 << 30, age_s=DAY_S)
    repeated.writer = log.writer
    # It has the numbers of the other one, as a second try of the same process.
    await repeated.append([b"a"])
    async with asyncio.TaskGroup() as group:
        for each in (log, repeated):
            group.create_task(each.append([b"b", b"c"]))
    await log.append([b"d"])
    entries = await log.read(0, limit=100)
    assert [(entry.position, entry.body) for entry in entries] == [
        (1, b"a"),
        (2, b"b"),
        (3, b"c"),
        (4, b"d"),
    ]
    (head,) = await database.fetch("SELECT position, size_bytes FROM trunkline_lines_log")
    assert tuple(head) == (4, 4)


async def test_without_the_database_the_caller_can_try_again() -> None:
    async with PostgresDatabase("postgresql://nobody@127.0.0.1:1/none") as away:
        with pytest.raises(JournalUnavailableError):
            await open_log(away).append([b"a"])
