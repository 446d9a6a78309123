"""Tests of cursors: a cursor of an event that a power failure undid is refused."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.journal.builders import append, begin, created, working
from harness.journal.opening import open_journal
from harness.journal.processes import WRITER, end, start
from trunkline.errors import CursorExpiredError, TaskNotFoundError
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Journal

if TYPE_CHECKING:
    import subprocess


def copy(source: Path, target: Path) -> None:
    """Copy the file and its log unchanged, as a disk holds them after a power failure."""
    Path(f"{target}-shm").unlink(missing_ok=True)
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")


def write(process: "subprocess.Popen[str]", count: int) -> None:
    """Let a writer process that writes on request append `count` events."""
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(count):
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()


async def test_a_cursor_of_an_event_lost_in_a_power_failure_is_refused(
    tmp_path: Path,
) -> None:
    path, backup = tmp_path / "journal.db", tmp_path / "kept.db"
    process = start(WRITER, path, "normal", "asked")
    assert process.stdout is not None
    task_id = process.stdout.readline().strip()
    write(process, 20)
    copy(path, backup)
    write(process, 50)
    process.kill()
    end(process)
    journal = open_journal(path)
    last_seen = await journal.head(task_id)
    epoch = parse_header((await journal.read(task_id, last_seen - 1))[0]).epoch
    await journal.check_cursor(task_id, last_seen, epoch)
    await journal.close()

    copy(backup, path)
    journal = open_journal(path)
    head = await journal.head(task_id)
    assert 20 < head < last_seen
    assert journal.epoch == epoch + 1
    with pytest.raises(CursorExpiredError) as caught:
        await journal.check_cursor(task_id, last_seen, epoch)
    assert caught.value.snapshot_sequence == str(head)
    while await journal.head(task_id) <= last_seen:
        await journal.append(task_id, journal.epoch, [build_draft([append("a", "other")])])
    for undone_sequence in (head + 1, last_seen):
        with pytest.raises(CursorExpiredError):
            await journal.check_cursor(task_id, undone_sequence, epoch)
        await journal.check_cursor(task_id, undone_sequence, journal.epoch)
    for earlier_sequence in (0, 1, 20, head):
        await journal.check_cursor(task_id, earlier_sequence, epoch)
    with pytest.raises(CursorExpiredError):
        await journal.check_cursor(task_id, head, journal.epoch)
    await journal.close()


async def test_the_owner_of_a_journal_is_on_disk_before_its_first_event(tmp_path: Path) -> None:
    # Otherwise a power failure could restore a journal without a record of its owner.
    path, backup = tmp_path / "journal.db", tmp_path / "kept.db"
    await open_journal(path).close()
    process = start(WRITER, path, "normal", "asked")
    assert process.stdout is not None
    process.stdout.readline()
    copy(path, backup)
    process.kill()
    end(process)
    journal = open_journal(backup)
    assert journal.epoch == 2
    await journal.close()


async def test_a_cursor_without_an_epoch_is_checked_against_the_head(
    journal: Journal,
) -> None:
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x", "y"), working()])])
    for after in range(5):
        await journal.check_cursor(task_id, after, 0)
        await journal.check_cursor(task_id, after, journal.epoch)
    with pytest.raises(CursorExpiredError):
        await journal.check_cursor(task_id, 5, 0)
    with pytest.raises(CursorExpiredError):
        await journal.check_cursor(task_id, 3, journal.epoch + 1)
    with pytest.raises(TaskNotFoundError):
        await journal.check_cursor("unknown", 0, 0)
