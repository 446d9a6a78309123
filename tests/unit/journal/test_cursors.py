"""Tests of cursors: those of events that a power failure undid are refused."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.journal.builders import append, begin, created, working
from harness.journal.processes import WRITER, end, start
from trunkline.errors import CursorExpiredError, TaskNotFoundError
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Journal

if TYPE_CHECKING:
    import subprocess


def copy(source: Path, target: Path) -> None:
    """Copy the file and its log as they are, as a disk would keep them behind a power failure."""
    Path(f"{target}-shm").unlink(missing_ok=True)
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")


def write(process: "subprocess.Popen[str]", count: int) -> None:
    """Let a writer that is asked write so much more."""
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(count):
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()


async def test_a_cursor_of_a_future_that_was_lost_with_the_power_is_refused(
    tmp_path: Path,
) -> None:
    path, kept = tmp_path / "journal.db", tmp_path / "kept.db"
    process = start(WRITER, path, "normal", "asked")
    assert process.stdout is not None
    task_id = process.stdout.readline().strip()
    write(process, 20)
    copy(path, kept)
    write(process, 50)
    process.kill()
    end(process)
    journal = Journal.open(path)
    seen = journal.head(task_id)
    epoch = parse_header(journal.read(task_id, seen - 1)[0]).epoch
    journal.check_cursor(task_id, seen, epoch)
    journal.close()

    copy(kept, path)
    journal = Journal.open(path)
    head = journal.head(task_id)
    assert 20 < head < seen
    assert journal.epoch == epoch + 1
    with pytest.raises(CursorExpiredError) as ahead:
        journal.check_cursor(task_id, seen, epoch)
    assert ahead.value.snapshot_sequence == str(head)
    while journal.head(task_id) <= seen:
        await journal.append(task_id, journal.epoch, [build_draft([append("a", "other")])])
    for lost in (head + 1, seen):
        with pytest.raises(CursorExpiredError):
            journal.check_cursor(task_id, lost, epoch)
        journal.check_cursor(task_id, lost, journal.epoch)
    for past in (0, 1, 20, head):
        journal.check_cursor(task_id, past, epoch)
    with pytest.raises(CursorExpiredError):
        journal.check_cursor(task_id, head, journal.epoch)
    journal.close()


def test_who_owns_a_journal_is_on_the_disk_before_anything_is_written(tmp_path: Path) -> None:
    # Else a power failure could bring back a journal that looks as if nobody had had it.
    path, kept = tmp_path / "journal.db", tmp_path / "kept.db"
    Journal.open(path).close()
    process = start(WRITER, path, "normal", "asked")
    assert process.stdout is not None
    process.stdout.readline()
    copy(path, kept)
    process.kill()
    end(process)
    journal = Journal.open(kept)
    assert journal.epoch == 2
    journal.close()


async def test_a_cursor_without_an_epoch_is_checked_against_what_is_there(
    journal: Journal,
) -> None:
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x", "y"), working()])])
    for after in range(5):
        journal.check_cursor(task_id, after, 0)
        journal.check_cursor(task_id, after, journal.epoch)
    with pytest.raises(CursorExpiredError):
        journal.check_cursor(task_id, 5, 0)
    with pytest.raises(CursorExpiredError):
        journal.check_cursor(task_id, 3, journal.epoch + 1)
    with pytest.raises(TaskNotFoundError):
        journal.check_cursor("nobody", 0, 0)
