"""The audit log in a database: of all processes, never changed, and bounded."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from harness.a2a.sse_client import PATIENCE_S
from harness.journal.postgres_server import PostgresServer, new_database
from harness.polling import poll, wait_for
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.settings import Settings
from trunkline.errors import JournalUnavailableError
from trunkline.observe.audit import (
    Action,
    Actor,
    ActorKind,
    AuditQuery,
    AuditRecord,
    audit_path,
    find_end,
    open_audit_log,
    read_audit_page,
    read_newer_records,
    read_records,
)
from trunkline.observe.audit.postgres_audit import PostgresAudit

ANN = Actor(kind=ActorKind.API_KEY, account="acme", name="ann", key_id="0123")
MIB = 1 << 20
DAY_S = 24 * 3600.0


@pytest.fixture
async def open_audit() -> AsyncIterator[Callable[..., PostgresAudit]]:
    """Return a function that opens the log as a further process."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database())

        def open_audit(*, size_bytes: int = MIB, age_s: float = DAY_S) -> PostgresAudit:
            database = PostgresDatabase(url)
            stack.push_async_exit(database)
            return PostgresAudit(database, size_bytes=size_bytes, age_s=age_s)

        yield open_audit


def acts(*numbers: int) -> list[AuditRecord]:
    return [
        AuditRecord(action=Action.TASK_CANCEL, actor=ANN, objects={"task": f"t-{number}"})
        for number in numbers
    ]


async def read_tasks(audit: PostgresAudit) -> list[str]:
    return [
        record.entry["object"]["task"]
        async for block in audit.read()
        for record in block
        if record.entry is not None
    ]


async def test_a_reader_that_follows_misses_no_record_of_many_writers(
    open_audit: Callable[..., PostgresAudit],
) -> None:
    writers = [open_audit() for _ in range(4)]
    reader = open_audit()
    followed: list[str] = []

    async def follow() -> None:
        async with aclosing(reader.read(follows=True)) as blocks:
            async for block in blocks:
                followed.extend((record.entry or {})["object"]["task"] for record in block)
                if len(followed) == 400:
                    return

    async def write(writer: PostgresAudit, first: int) -> None:
        for number in range(first, first + 100, 5):
            await writer.append(acts(*range(number, number + 5)), "bridge")

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(follow())
        for number, writer in enumerate(writers):
            group.create_task(write(writer, 100 * number))
    assert sorted(followed) == sorted(f"t-{number}" for number in range(400))
    assert await read_tasks(reader) == followed
    for first in range(0, 400, 100):
        # The records of one process stay in their order.
        own = [task for task in followed if first <= int(task[2:]) < first + 100]
        assert own == [f"t-{number}" for number in range(first, first + 100)]


async def test_pages_and_new_records(open_audit: Callable[..., PostgresAudit]) -> None:
    audit = open_audit()
    assert await find_end(audit) is None
    await audit.append(acts(*range(7)), "bridge")
    end = await find_end(audit)
    first = await read_audit_page(audit, AuditQuery(account="acme"), page_size=3)
    await open_audit().append(acts(7, 8), "tools")
    second = await read_audit_page(
        audit, AuditQuery(), page_size=10, page_token=first.next_page_token
    )
    tasks = [record["object"]["task"] for record in (*first.records, *second.records)]
    assert tasks == [f"t-{number}" for number in reversed(range(7))]
    newer = await read_newer_records(audit, end)
    assert newer is not None
    assert [record["process"] for record in newer.records] == ["tools", "tools"]
    assert (await read_audit_page(audit, AuditQuery(task="t-3"), page_size=9)).records


async def test_the_oldest_records_are_deleted_from_a_log_that_is_too_large(
    open_audit: Callable[..., PostgresAudit],
) -> None:
    audit = open_audit(size_bytes=100_000)
    for number in range(0, 2000, 100):
        await audit.append(acts(*range(number, number + 100)), "bridge")
    tasks = await read_tasks(audit)
    assert 0 < len(tasks) < 1500
    assert tasks == [f"t-{number}" for number in range(2000 - len(tasks), 2000)]


async def test_old_records_are_deleted_also_if_nothing_is_recorded(tmp_path: Path) -> None:
    async with new_database() as url, PostgresDatabase(url) as database:
        settings = Settings(data_dir=tmp_path, store=url)
        audit = PostgresAudit(database, size_bytes=MIB, age_s=DAY_S)
        await audit.append(acts(1), "bridge")
        await database.fetch("UPDATE trunkline_audit SET written = now() - interval '10 years'")
        await audit.append(acts(2), "bridge")
        async with open_audit_log(settings, database, process="test"):
            left = await poll(lambda: read_tasks(audit), lambda tasks: "t-1" not in tasks)
        assert left == ["t-2"]


async def test_a_restart_of_the_database_loses_and_repeats_no_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = PostgresServer()
    settings = Settings(data_dir=tmp_path, store=server.url)
    async with PostgresDatabase(server.url) as database:
        async with open_audit_log(settings, database, process="test") as log:
            assert log is not None
            for number in range(900):
                log.record(Action.TASK_CANCEL, ANN, task=f"t-{number}")
                if number == 450:
                    server.kill()
                    await wait_for(lambda: "audit.not_written" in caplog.messages)
                    server.start()
        audit = PostgresAudit(database, size_bytes=MIB, age_s=DAY_S)
        assert await read_tasks(audit) == [f"t-{number}" for number in range(900)]
    assert not audit_path(settings).exists()
    server.remove()


async def test_records_are_left_in_a_file_if_the_database_is_away_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(data_dir=tmp_path, store="postgresql://nobody@127.0.0.1:1/none")
    with caplog.at_level(logging.WARNING):
        async with (
            PostgresDatabase(settings.store) as database,
            open_audit_log(settings, database, process="test") as log,
        ):
            assert log is not None
            log.record(Action.TASK_CANCEL, ANN, task="t")
            with pytest.raises(JournalUnavailableError):
                await read_audit_page(log.reader, AuditQuery(), page_size=1)
    entries = [record.entry for record in read_records(audit_path(settings))]
    assert [entry and entry["object"] for entry in entries] == [{"task": "t"}]
    names: Sequence[str] = [record.message for record in caplog.records]
    assert "audit.left_in_file" in names
    assert "audit.lost" not in names


async def test_a_file_that_the_settings_name_is_the_log(tmp_path: Path) -> None:
    path = tmp_path / "named.jsonl"
    settings = Settings(
        data_dir=tmp_path, audit_file=path, store="postgresql://nobody@127.0.0.1:1/none"
    )
    async with (
        PostgresDatabase(settings.store) as database,
        open_audit_log(settings, database, process="test") as log,
    ):
        assert log is not None
        log.record(Action.TASK_CANCEL, ANN, task="t")
    assert len(list(read_records(path))) == 1
