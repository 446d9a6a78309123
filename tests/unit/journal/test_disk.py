"""Disks that are full, failing, read-only or gone: one clear error, no committed event is lost."""

import asyncio
import time
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


# Writes numbers until its files reach the size limit; then lifts the limit and continues.
LIMITED = """
import asyncio, resource, signal, sys
from pathlib import Path
from harness.journal.builders import append, begin, completed, created
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import build_draft
from harness.journal.opening import open_journal

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    journal = open_journal(Path(sys.argv[1]), synchronous=sys.argv[2])
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "0 ")])])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    number = 0
    problems = set()
    for _ in range(200):
        try:
            event = append("a", f"{number + 1} ")
            await journal.append(task_id, journal.epoch, [build_draft([event])])
            number += 1
        except JournalUnavailableError as error:
            problems.add(error.problem)
    for _ in range(3):
        try:
            await journal.create(journal.new_task_id(), created())
        except JournalUnavailableError as error:
            problems.add(error.problem)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await journal.append(task_id, journal.epoch, [build_draft([append("a", f"{number + 1} ")])])
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    print(task_id, number + 1, *problems, sep="|", flush=True)

asyncio.run(main())
sys.stdin.read()
"""


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_a_full_disk_is_reported_and_used_again_once_it_has_space(
    tmp_path: Path, synchronous: str
) -> None:
    path = tmp_path / "journal.db"
    process = start(LIMITED, path, synchronous)
    assert process.stdout is not None
    task_id, count, *problems = process.stdout.readline().strip().split("|")
    assert problems == ["the disk can't be read or written; check it, and the space on it"]
    process.kill()
    process.communicate()
    journal = open_journal(path)
    numbers = [int(word) for word in (await read_text(journal, task_id)).split()]
    assert numbers == list(range(int(count) + 1))
    assert (await journal.row(task_id)).is_ended
    await journal.close()


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


@pytest.mark.parametrize("file_mode", [0o444, 0o000])
@pytest.mark.parametrize("folder_mode", [0o1777, 0o555])
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


async def test_the_log_stays_short_under_steady_load(journal: Journal, tmp_path: Path) -> None:
    task_id = await start_task(journal)
    log, longest_bytes, written_bytes = tmp_path / "journal.db-wal", 0, 0
    text = "y" * 3000
    # A log without checkpoints holds everything that was written. The time of a checkpoint depends
    # on the disk, so the loop writes longer on a slow one.
    deadline_s = time.monotonic() + 60
    while written_bytes < 45e6 or (
        longest_bytes > 0.8 * written_bytes and time.monotonic() < deadline_s
    ):
        appends = [
            journal.append(task_id, journal.epoch, [build_draft([append("a", text)])])
            for _ in range(40)
        ]
        await asyncio.wait(appends)
        written_bytes += 40 * len(text)
        longest_bytes = max(longest_bytes, log.stat().st_size)
    assert longest_bytes <= 0.8 * written_bytes


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
