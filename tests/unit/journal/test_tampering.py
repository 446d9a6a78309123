"""An encrypted journal shows every change of a task's rows by another program, and only these."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.journal.builders import append
from harness.journal.opening import open_journal
from harness.journal.protected import new_key, open_keyring, write_journal, write_task
from trunkline.core.encryption import copy_keyring, keyring_path
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.events import build_draft, last_sequence
from trunkline.journal.journal import Journal, Retention
from trunkline.journal.sqlite.admin import back_up_file, prune_journal
from trunkline.journal.sqlite.check import check_journal

KEY = new_key()
# A query for the content of each table with the ids of tasks, and the statement that replaces it.
TABLES = {
    "events": (
        "SELECT body, task_id FROM events JOIN tasks ON number = task",
        "UPDATE events SET body = ? WHERE body = ?",
    ),
    "folds": (
        "SELECT snapshot, task_id FROM folds JOIN tasks ON number = task",
        "UPDATE folds SET snapshot = ? WHERE snapshot = ?",
    ),
    "tasks": (
        "SELECT metadata, task_id FROM tasks",
        "UPDATE tasks SET metadata = ? WHERE metadata = ?",
    ),
    "webhooks": (
        "SELECT content, task_id FROM webhooks",
        "UPDATE webhooks SET content = ? WHERE content = ?",
    ),
}
# The numbers of the tasks of `write_journal`.
COMPACTED, ENDED, UNFINISHED = 1, 2, 3


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a data directory whose journal has rows in all tables."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "journals").mkdir()
    asyncio.run(write_journal(folder / "journals" / "mesh.db", open_keyring(folder, KEY)))
    return folder


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "data")
    return tmp_path / "data" / "journals" / "mesh.db"


def run_raw(path: Path, statement: str, values: Sequence[object] = ()) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount > 0


def query(path: Path, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement, values).fetchall()


def task_id_of(path: Path, number: int) -> str:
    return str(query(path, "SELECT task_id FROM tasks WHERE number = ?", [number])[0][0])


def problems(path: Path) -> list[str]:
    return check_journal(path, open_keyring(path.parent.parent, KEY)).problems


def open_encrypted(path: Path) -> Journal:
    return open_journal(path, keyring=open_keyring(path.parent.parent, KEY))


def test_an_unchanged_journal_has_no_problems(path: Path) -> None:
    assert problems(path) == []
    assert all(query(path, select) for select, _ in TABLES.values())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_of_any_content_is_found_and_its_task_named(
    written: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("copy") / "data"
    shutil.copytree(written, folder)
    path = folder / "journals" / "mesh.db"
    select, update = TABLES[data.draw(st.sampled_from(sorted(TABLES)))]
    content, task_id = data.draw(st.sampled_from(query(path, select)))
    changed = bytearray(content)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    run_raw(path, update, [bytes(changed), content])
    assert any(task_id in problem for problem in problems(path))
    shutil.rmtree(folder.parent)


@pytest.mark.parametrize("number", [ENDED, UNFINISHED])
@pytest.mark.parametrize("position", [0, 1, -1], ids=["first", "second", "last"])
async def test_a_removed_event_is_found_and_not_read_over(
    path: Path, number: int, position: int
) -> None:
    rows = query(path, "SELECT sequence FROM events WHERE task = ? ORDER BY sequence", [number])
    task_id = task_id_of(path, number)
    values = [number, rows[position][0]]
    run_raw(path, "DELETE FROM events WHERE task = ? AND sequence = ?", values)
    assert any(problem.startswith(f"task {task_id}: ") for problem in problems(path))
    with pytest.raises(JournalUnavailableError):
        await read_all(path, task_id)


async def read_all(path: Path, task_id: str) -> None:
    """Read a task from batch to batch, as its readers do."""
    async with open_encrypted(path) as journal:
        cursor, head = 0, await journal.head(task_id)
        while cursor < head:
            cursor = last_sequence((await journal.read(task_id, cursor, limit_bytes=1))[-1])


SWAP = (
    "UPDATE events SET body = (SELECT body FROM events WHERE task = ? AND sequence = ?) "
    "WHERE task = ? AND sequence = ?"
)
MOVE = "UPDATE events SET task = ?, sequence = ? WHERE task = ? AND sequence = ?"


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (SWAP, (ENDED, 2, ENDED, 3)),
        (SWAP, (UNFINISHED, 3, ENDED, 3)),
        (MOVE, (ENDED, 9, ENDED, 3)),
        (MOVE, (UNFINISHED, 4, ENDED, 4)),
        ("UPDATE tasks SET number = 9 WHERE number = ?", (ENDED,)),
        ("UPDATE tasks SET account = 'other' WHERE number = ?", (ENDED,)),
        ("UPDATE tasks SET state = 2 WHERE number = ?", (ENDED,)),
        ("UPDATE tasks SET ended_ns = 0 WHERE number = ?", (ENDED,)),
        ("UPDATE tasks SET head = 3 WHERE number = ?", (ENDED,)),
        ("UPDATE tasks SET head = 2 WHERE number = ?", (UNFINISHED,)),
        ("UPDATE tasks SET stage = 1 WHERE number = ?", (ENDED,)),
        ("UPDATE tasks SET stage = 0 WHERE number = ?", (COMPACTED,)),
        ("UPDATE folds SET task = 2, epoch = epoch + ?", (0,)),
        ("UPDATE folds SET epoch = epoch + ?", (1,)),
        ("DELETE FROM folds WHERE task = ?", (COMPACTED,)),
        ("UPDATE webhooks SET content = (SELECT content FROM webhooks WHERE number = ?)", (1,)),
        ("INSERT INTO events VALUES (77, ?, x'00')", (1,)),
    ],
)
def test_other_changes_are_found(path: Path, statement: str, values: Sequence[int]) -> None:
    run_raw(path, statement, values)
    assert problems(path) != []


async def test_a_changed_event_is_not_read(path: Path) -> None:
    run_raw(path, SWAP, [ENDED, 2, ENDED, 3])
    async with open_encrypted(path) as journal:
        for after in (0, 1, 2):
            with pytest.raises(JournalUnavailableError, match="altered, or moved"):
                await journal.read(task_id_of(path, ENDED), after)
        assert len(await journal.read(task_id_of(path, UNFINISHED), 0)) == 3


def test_a_changed_task_that_is_unfinished_is_refused_when_the_journal_is_opened(
    path: Path,
) -> None:
    run_raw(path, "UPDATE tasks SET agent = 'other' WHERE number = ?", [UNFINISHED])
    with pytest.raises(JournalUnavailableError, match="altered, or moved"):
        open_encrypted(path)


def forge_event(path: Path) -> None:
    """Put a plain event in place of an encrypted one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET body = x'0a00' WHERE sequence = 3")


def forge_journal(path: Path) -> None:
    """Replace the journal by another program's plain one."""
    folder = path.parent.parent.parent / "forged"
    forged = folder / "journals" / path.name
    forged.parent.mkdir(parents=True, mode=0o700)
    asyncio.run(write_journal(forged, None))
    path.unlink()
    shutil.copy(forged, path)


@pytest.mark.parametrize("forge", [forge_event, forge_journal])
async def test_plain_content_in_a_journal_that_was_encrypted_is_refused(
    path: Path, forge: Callable[[Path], None]
) -> None:
    await asyncio.to_thread(forge, path)
    assert any("a row is not encrypted" in problem for problem in problems(path))
    with pytest.raises(JournalUnavailableError, match="not encrypted"):
        async with open_encrypted(path) as journal:
            await journal.read(task_id_of(path, ENDED), 0)
    # A copy of the keyring knows it, too.
    copy = path.parent / "copy"
    copy_keyring(path.parent.parent, copy)
    report = check_journal(path, open_keyring(copy, KEY))
    assert any("a row is not encrypted" in problem for problem in report.problems)


def test_a_changed_list_of_encrypted_journals_is_refused(path: Path) -> None:
    file = keyring_path(path.parent.parent)
    keyring = open_keyring(path.parent.parent, KEY)
    text = file.read_text()
    begin = text.index('"encrypted_journals": "') + len('"encrypted_journals": "')
    file.write_text(f"{text[:begin]}AAAA{text[begin + 4 :]}")
    for reader in (keyring, open_keyring(path.parent.parent, KEY)):
        with pytest.raises(ConfigurationError, match="was altered"):
            reader.has_encrypted_journal(path.name)


async def test_retention_leaves_a_journal_without_problems(path: Path) -> None:
    keyring = open_keyring(path.parent.parent, KEY)
    result = await prune_journal(path, Retention(compact_after_s=0, retain_s=0), keyring)
    assert result.deleted == 2
    report = check_journal(path, keyring)
    assert (report.problems, report.task_count) == ([], 1)
    assert query(path, "SELECT count(*) FROM folds") == [(0,)]


async def test_the_end_of_a_running_task_is_protected_from_the_next_renewal_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journals" / "mesh.db"
    keyring = open_keyring(tmp_path, KEY)
    journal = open_journal(path, keyring=keyring)
    task_id = await write_task(journal, is_ended=False)
    head = await journal.append(task_id, journal.epoch, [build_draft([append("a", "z")])])
    copies = []
    for name in ("before.db", "after.db"):
        back_up_file(path, tmp_path / name)
        copies.append(tmp_path / name)
        await journal.renew_lease(10.0)
    await journal.close()
    for copy in copies:
        assert check_journal(copy, keyring).problems == []
        run_raw(copy, "DELETE FROM events WHERE sequence = ?", [head])
    before, after = copies
    assert check_journal(before, keyring).problems == []
    (problem,) = check_journal(after, keyring).problems
    assert problem == f"task {task_id}: its last events are missing"
    with pytest.raises(JournalUnavailableError, match="last events of task"):
        open_journal(after, keyring=keyring)
