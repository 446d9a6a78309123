"""The versions of the tables: processes create them, and `trunkline data migrate` changes them."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import asyncpg
import pytest

import trunkline
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import run_command
from harness.polling import poll
from trunkline.core.postgres import PostgresDatabase, Schema
from trunkline.errors import JournalUnavailableError
from trunkline.journal.postgres import PostgresCatalog
from trunkline.processes.stored_tables import SCHEMAS

FIRST = Schema("first", [["CREATE TABLE trunkline_first (name text PRIMARY KEY)"]])
SECOND = Schema(
    "first",
    [
        *FIRST.steps,
        [
            "ALTER TABLE trunkline_first ADD COLUMN size bigint NOT NULL DEFAULT 0",
            "CREATE TABLE trunkline_second (name text PRIMARY KEY)",
        ],
    ],
)

# The locks of this database for which a transaction waits.
WAITING = (
    "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database "
    "WHERE datname = current_database() AND NOT granted"
)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with new_database() as found:
        yield found


def all_schemas() -> Iterator[Schema]:
    package = Path(inspect.getfile(trunkline)).parent
    for path in package.rglob("*.py"):
        if "postgres" in path.read_text() and "chema(" in path.read_text():
            name = ".".join(("trunkline", *path.relative_to(package).with_suffix("").parts))
            for value in vars(import_module(name)).values():
                if isinstance(value, Schema):
                    yield value


def test_the_list_has_the_tables_of_all_stores() -> None:
    assert {schema.part for schema in all_schemas()} == {schema.part for schema in SCHEMAS}


async def test_a_command_creates_all_tables_or_says_that_they_are_up_to_date(url: str) -> None:
    made = await run_command("data", "migrate", stdin=None, folder=None, TRUNKLINE_STORE=url)
    again = await run_command("data", "migrate", stdin=None, folder=None, TRUNKLINE_STORE=url)
    assert made.out.splitlines() == [
        f"{schema.part}: version 0 -> {schema.version}" for schema in SCHEMAS
    ]
    assert again.out.splitlines() == [
        f"{schema.part}: version {schema.version}" for schema in SCHEMAS
    ]


async def test_a_dry_run_changes_nothing_and_prints_what_another_role_can_run(url: str) -> None:
    shown = await run_command(
        "data", "migrate", "--dry-run", stdin=None, folder=None, TRUNKLINE_STORE=url
    )
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT to_regclass('trunkline_schema')") is None
        await connection.execute(shown.out)
        rows = await connection.fetch("SELECT part, version FROM trunkline_schema")
    finally:
        await connection.close()
    assert {row["part"]: row["version"] for row in rows} == {
        schema.part: schema.version for schema in SCHEMAS
    }
    async with PostgresDatabase(url) as database:
        store = await PostgresCatalog(database).open("made-by-hand")
        await store.close()


async def test_a_role_that_can_not_create_tables_uses_those_of_another_role(url: str) -> None:
    schema = url.rpartition("=")[2]
    script = await run_command("data", "migrate", "--dry-run", TRUNKLINE_STORE=url)
    admin = await asyncpg.connect(url)
    await admin.execute(script.out)
    await admin.execute(
        f"DROP ROLE IF EXISTS writer; CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA {schema} "
        f"TO writer; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} "
        "TO writer"
    )
    as_writer = url.replace("postgres@", "writer@")
    checked = await run_command("data", "migrate", TRUNKLINE_STORE=as_writer)
    assert (checked.exit, checked.err) == (0, "")
    async with PostgresDatabase(as_writer) as database:
        store = await PostgresCatalog(database).open("first")
        await store.renew_lease(10.0)
        await store.close()
    await admin.execute("DROP OWNED BY writer; DROP ROLE writer")
    await admin.close()


async def test_processes_create_tables_and_only_the_command_changes_them(url: str) -> None:
    async with PostgresDatabase(url) as old, PostgresDatabase(url) as new:
        await old.prepare(FIRST)
        with pytest.raises(JournalUnavailableError, match="run `trunkline data migrate`"):
            await new.prepare(SECOND)
        await old.fetch("INSERT INTO trunkline_first (name) VALUES ('before')")

        assert await new.run(SECOND.migrate) == SECOND.version

        await new.prepare(SECOND)
        # A process of the version before goes on.
        await old.prepare(FIRST)
        await old.fetch("INSERT INTO trunkline_first (name) VALUES ('after')")
        rows = await new.fetch("SELECT name, size FROM trunkline_first ORDER BY name")
        assert [tuple(row) for row in rows] == [("after", 0), ("before", 0)]


async def test_of_commands_at_the_same_time_one_changes_the_tables(url: str) -> None:
    async with PostgresDatabase(url) as database:
        await database.prepare(FIRST)
        async with asyncio.TaskGroup() as tasks:
            changes = [tasks.create_task(database.run(SECOND.migrate)) for _ in range(4)]
        assert [change.result() for change in changes] == [SECOND.version] * 4


async def test_a_change_waits_for_a_transaction_that_uses_the_table(url: str) -> None:
    async with PostgresDatabase(url) as database:
        await database.prepare(FIRST)
        async with asyncio.TaskGroup() as tasks, database.transaction() as connection:
            await connection.execute("INSERT INTO trunkline_first (name) VALUES ('a')")
            change = tasks.create_task(database.run(SECOND.migrate))
            await poll(partial(database.fetch, WAITING))
            assert not change.done()
        assert change.result() == SECOND.version


async def test_a_newer_database_is_refused_with_the_reason_and_what_to_do(
    url: str, tmp_path: Path
) -> None:
    async with PostgresDatabase(url) as newer:
        await newer.prepare(SCHEMAS[0])
        await newer.fetch("UPDATE trunkline_schema SET version = 99")
        async with PostgresDatabase(url) as database:
            with pytest.raises(JournalUnavailableError, match=r"version 99.*use that version"):
                await PostgresCatalog(database).list_names()
    for words in (("data", "migrate"), ("serve", "agents", "echo", "--data", str(tmp_path))):
        refused = await run_command(*words, stdin=None, folder=tmp_path, TRUNKLINE_STORE=url)
        assert refused.exit != 0
        assert "a later version of trunkline changed them: use that version" in refused.err


async def test_without_a_database_the_command_says_what_it_is_for() -> None:
    refused = await run_command("data", "migrate", stdin=None, folder=None)
    assert refused.exit == 1
    assert "journals in the data directory are migrated when they are opened" in refused.err
