"""Tests of the SQLite file: its owner, and the errors of files that can't be used."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.journal.builders import append, begin, completed, created, group, row, stored, working
from harness.journal.opening import open_journal
from trunkline.core.database.connection import open_read_only
from trunkline.core.database.process import OwnerProcess, _start_by_ps, process_start
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite import SqliteStore, statements
from trunkline.journal.sqlite.store import DELETE_EVENTS, SELECT_EVENTS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def run_raw(path: Path, statement: str) -> None:
    """Run a statement on the file that no journal would run."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def open_and_get_problem(path: Path) -> str:
    with pytest.raises(JournalUnavailableError) as caught:
        SqliteStore.open(path)
    assert caught.value.path == str(path)
    return caught.value.problem


async def test_a_journal_creates_its_folder_and_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "journal.db"
    store = SqliteStore.open(path)
    await store.commit(group(stored([created()]), made=[row()]))
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    await store.close()
    assert modes == {0o600}


def test_a_process_that_ended_has_no_start() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert OwnerProcess.from_pid(process.pid) == OwnerProcess.from_pid(process.pid)
    assert process_start(process.pid) != ""
    process.communicate(timeout=60)
    assert process_start(process.pid) == ""


def test_process_start_is_read_from_ps_without_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps_script = tmp_path / "ps"
    ps_script.write_text('#!/bin/sh\necho "Sun Nov 22 05:00:00 2026"\n')
    ps_script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _start_by_ps(1) == "Sun Nov 22 05:00:00 2026"
    ps_script.unlink()
    assert _start_by_ps(1) == ""


async def test_after_a_takeover_the_old_owner_writes_nothing(path: Path) -> None:
    journal = open_journal(path)
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    run_raw(path, "UPDATE meta SET epoch = epoch + 1")
    with pytest.raises(FencedError, match=task_id):
        await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x")])])
    with pytest.raises(FencedError, match=task_id):
        await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    with pytest.raises(FencedError):
        await journal.renew_lease(1.0)
    with pytest.raises(FencedError):
        await journal._store.compact({})
    assert await journal.head(task_id) == 1
    await journal.close()


async def test_closing_after_a_takeover_does_not_release_the_new_owners_journal(path: Path) -> None:
    store = SqliteStore.open(path)
    run_raw(path, "UPDATE meta SET epoch = epoch + 1")
    await store.close()
    again = SqliteStore.open(path)
    assert again.was_lost
    await again.close()


def test_a_file_that_is_no_database_is_reported(path: Path) -> None:
    path.write_text("no database " * 1000)
    assert "not a SQLite database" in open_and_get_problem(path)


def test_another_programs_database_is_refused(path: Path) -> None:
    run_raw(path, "CREATE TABLE theirs (x)")
    assert "another program's database" in open_and_get_problem(path)
    run_raw(path, "PRAGMA application_id = 7")
    assert "another program's database" in open_and_get_problem(path)


async def test_a_newer_schema_is_refused(path: Path) -> None:
    await SqliteStore.open(path).close()
    run_raw(path, "UPDATE meta SET schema_version = 99")
    assert "its schema is 99" in open_and_get_problem(path)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "use another data directory" in open_and_get_problem(tmp_path / "file" / "journal.db")
    assert "not a regular file" in open_and_get_problem(tmp_path)


@pytest.mark.parametrize("body", ["x'00000002'", "x'0a041234'", "x'00'"])
async def test_a_damaged_event_is_reported_and_the_journal_released(path: Path, body: str) -> None:
    store = SqliteStore.open(path)
    await store.commit(group(stored([created()], 1), made=[row()]))
    await store.close()
    run_raw(path, " ".join(("INSERT INTO events VALUES (1, 2,", body, ")")))
    assert "it is damaged" in open_and_get_problem(path)
    run_raw(path, "DELETE FROM events WHERE sequence = 2")
    await SqliteStore.open(path).close()


async def test_a_journal_without_the_last_events_of_an_unfinished_task_is_refused(
    path: Path,
) -> None:
    store = SqliteStore.open(path)
    await store.commit(group(stored([created()], 1), made=[row()]))
    await store.commit(group(stored([begin("a", "x")], 2)))
    await store.close()
    run_raw(path, "DELETE FROM events WHERE sequence = 2")
    assert "the last events of task" in open_and_get_problem(path)


async def test_a_full_disk_fails_the_appends_of_that_commit_alone(path: Path) -> None:
    journal = open_journal(path)
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x")])])
    limit_pages(journal, "PRAGMA page_count")
    big = build_draft([append("a", "y" * 200_000)])
    appends = [
        journal.append(task_id, journal.epoch, [draft]) for draft in (big, build_draft([working()]))
    ]
    await asyncio.wait(appends)
    for future in appends:
        error = future.exception()
        assert isinstance(error, JournalUnavailableError)
        assert "the disk is full" in error.problem
    assert await journal.head(task_id) == 2
    assert await journal.read(task_id, 2) == []
    limit_pages(journal, "SELECT 1000000")
    assert await journal.append(task_id, journal.epoch, [build_draft([append("a", "z")])]) == 3
    assert (await journal.snapshot(task_id)).task.artifacts[0].parts[0].text == "xz"
    await journal.close()


def limit_pages(journal: Journal, pages: str) -> None:
    """Limit the database to a number of pages, to simulate a full disk or lift the limit."""
    assert isinstance(journal._store, SqliteStore)
    connection = journal._store._writer.connection
    connection.execute(f"PRAGMA max_page_count = {connection.execute(pages).fetchone()[0]}")


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (statements.SELECT_UNFINISHED, "tasks_unfinished"),
        (statements.SELECT_ENDED, "tasks_by_end"),
        (statements.SELECT_LAST_ENDED, "tasks_by_end"),
        (statements.select_by_id(1), "sqlite_autoindex_tasks_1"),
        (statements.select_by_id(3), "sqlite_autoindex_tasks_1"),
        (SELECT_EVENTS, "PRIMARY KEY"),
        (DELETE_EVENTS, "PRIMARY KEY"),
    ],
)
async def test_a_query_uses_an_index_and_sorts_nothing(
    tmp_path: Path, query: str, index: str
) -> None:
    await SqliteStore.open(tmp_path / "journal.db").close()
    values = [1] * (2 if "?2" in query else query.count("?"))
    with open_read_only(tmp_path / "journal.db") as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
    details = [detail for *_, detail in plan]
    assert index in details[0], details
    assert not any("TEMP B-TREE" in detail or "SCAN events" in detail for detail in details)
