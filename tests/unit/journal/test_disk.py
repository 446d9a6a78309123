"""Disks that are full, failing, read-only or gone: one clear error, no committed event is lost."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.journal.builders import append, begin, completed, created
from harness.journal.opening import open_journal
from harness.journal.processes import start
from trunkline.core.database import connect
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite.writer import SqliteWriter


def get_writer(journal: Journal) -> SqliteWriter:
    return journal._store._writer  # type: ignore[attr-defined, no-any-return]


async def start_task(journal: Journal) -> str:
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x")])])
    return task_id


async def read_text(journal: Journal, task_id: str) -> str:
    return (await journal.snapshot(task_id)).task.artifacts[0].parts[0].text


async def test_a_journal_that_cannot_be_written_fails_until_it_can(journal: Journal) -> None:
    task_id = await start_task(journal)
    writer = get_writer(journal)
    writer.connection.execute("PRAGMA query_only = 1")
    for event in (append("a", "y"), completed()):
        with pytest.raises(JournalUnavailableError, match="can't be written"):
            await journal.append(task_id, journal.epoch, [build_draft([event])])
    with pytest.raises(JournalUnavailableError, match="can't be written"):
        await journal.renew_lease(10.0)
    writer.connection.execute("PRAGMA query_only = 0")
    await journal.append(task_id, journal.epoch, [build_draft([append("a", "z"), completed()])])
    assert await read_text(journal, task_id) == "xz"


async def test_a_transaction_that_cannot_end_is_replaced_by_a_new_connection(
    journal: Journal,
) -> None:
    task_id = await start_task(journal)
    writer = get_writer(journal)
    # The state after a failed rollback.
    writer.connection.execute("BEGIN IMMEDIATE")
    assert (await journal.create(journal.new_task_id(), created())).is_new
    writer.connection.execute("BEGIN IMMEDIATE")
    await journal.append(task_id, journal.epoch, [build_draft([append("a", "y")])])
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    assert await read_text(journal, task_id) == "xy"


def remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def replace_log(folder: Path) -> None:
    log = folder / "journal.db-wal"
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)


@pytest.mark.parametrize("harm", [remove_all, replace_log])
async def test_no_task_begins_or_ends_in_files_that_were_deleted(
    journal: Journal, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    task_id = await start_task(journal)
    harm(tmp_path)
    with pytest.raises(JournalUnavailableError, match="moved, replaced or deleted"):
        await journal.create(journal.new_task_id(), created())
    with pytest.raises(JournalUnavailableError, match="moved, replaced or deleted"):
        await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    with pytest.raises(JournalUnavailableError, match="moved, replaced or deleted"):
        await journal.renew_lease(10.0)


async def test_restored_files_are_used_again(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "journal.db")
    task_id = await start_task(journal)
    elsewhere = tmp_path / "away"
    elsewhere.mkdir()
    names = [f"journal.db{suffix}" for suffix in ("", "-wal", "-shm")]
    for name in names:
        (tmp_path / name).rename(elsewhere / name)
    with pytest.raises(JournalUnavailableError):
        await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    for name in names:
        (elsewhere / name).rename(tmp_path / name)
    assert await journal.append(task_id, journal.epoch, [build_draft([completed()])]) == 3
    await journal.close()


# Opens a journal as a user with read access only, also when root runs the tests.
READER = """
import os, sys
from pathlib import Path
from trunkline.errors import JournalUnavailableError
from harness.journal.opening import open_journal

os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    open_journal(Path("journal.db"))
except JournalUnavailableError as error:
    print(error.problem, flush=True)
"""


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o1777), (0o000, 0o555)])
async def test_a_file_without_read_or_write_permission_is_reported(
    tmp_path: Path, file_mode: int, folder_mode: int
) -> None:
    folder = tmp_path / "data"
    await open_journal(folder / "journal.db").close()
    (folder / "journal.db").chmod(file_mode)
    folder.chmod(folder_mode)
    process = start(READER, folder)
    output, _ = process.communicate(timeout=60)
    folder.chmod(0o755)
    assert output.startswith("it can't be ")


async def test_a_failed_checkpoint_fails_no_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    task_id = await start_task(journal)
    checkpointer = journal._store._checkpointer  # type: ignore[attr-defined]
    checkpointer._connection.close()
    for _ in range(3000):
        await journal.append(task_id, journal.epoch, [build_draft([append("a", "y")])])
    assert await journal.head(task_id) == 3002
    async with asyncio.timeout(30):
        while "journal.upkeep_failed" not in caplog.text:
            await journal.renew_lease(10.0)
            await asyncio.sleep(0)
    checkpointer._connection = connect(path)
    assert await journal._store.checkpoint()
    assert caplog.text.count("journal.upkeep_failed") == 1
    await journal.close()
