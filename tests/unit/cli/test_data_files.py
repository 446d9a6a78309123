"""`trunkline data` also handles the files of tasks."""

import asyncio
import contextlib
import io
import sqlite3
from pathlib import Path

import pytest

from harness.journal.builders import completed, created
from harness.journal.opening import open_journal
from trunkline.cli.commands import data as commands
from trunkline.cli.exits import ExitCode
from trunkline.journal.artifacts import Blob, Reference
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.events import build_draft
from trunkline.v1 import event_pb2


async def _write(path: Path) -> Blob:
    """Make a journal with a task that has a file."""
    journal = open_journal(path)
    task_id = journal.new_task_id()
    # The content looks like a database and belongs to no store.
    content = b"SQLite format 3\x00" + bytes(300_000)
    blob = await FolderBlobStore(blob_folder(path)).put(Reference.new(task_id), content)
    await journal.create(task_id, created())
    delta = event_pb2.ArtifactDelta(artifact_id="a", last=True)
    delta.start.name = "files"
    delta.part.CopyFrom(blob.to_part())
    await journal.append(task_id, journal.epoch, [build_draft([event_pb2.Event(delta=delta)])])
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    await journal.close()
    return blob


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    return asyncio.run(_write(_journal(tmp_path / "data")))


def _journal(folder: Path) -> Path:
    return folder / "journals" / "maker.db"


def _path(folder: Path, blob: Blob) -> Path:
    reference = blob.reference
    return blob_folder(_journal(folder)) / reference.task_id / reference.blob_id


def _check(folder: Path) -> tuple[ExitCode, str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = commands.check_data(folder, json=False)
    return code, output.getvalue()


def test_a_file_that_is_damaged_or_missing_is_named(tmp_path: Path, blob: Blob) -> None:
    folder = tmp_path / "data"
    code, output = _check(folder)
    assert (code, output.splitlines()) == (
        ExitCode.OK,
        ["journals/maker.db: ok, 1 tasks, 3 events"],
    )
    path = _path(folder, blob)
    path.write_bytes(bytes(300_016))
    code, output = _check(folder)
    assert code == ExitCode.FAILED
    assert f"file {path.name} is damaged" in output
    path.unlink()
    assert f"file {path.name} is missing" in _check(folder)[1]


def test_files_are_backed_up_and_restored(tmp_path: Path, blob: Blob) -> None:
    folder, backup, restored = (tmp_path / name for name in ("data", "backup", "back"))
    commands.back_up_data(backup, folder, json=False)
    commands.restore_data(backup, restored, json=False)

    assert _path(restored, blob).read_bytes() == _path(folder, blob).read_bytes()
    assert _check(restored)[0] == ExitCode.OK
    assert asyncio.run(FolderBlobStore(blob_folder(_journal(restored))).get(blob.reference)) == blob


def test_a_damaged_backup_is_not_restored(tmp_path: Path, blob: Blob) -> None:
    backup = tmp_path / "backup"
    commands.back_up_data(backup, tmp_path / "data", json=False)
    _path(backup, blob).write_bytes(b"other")
    with pytest.raises(Exception, match="is damaged"):
        commands.restore_data(backup, tmp_path / "back", json=False)
    assert not (tmp_path / "back").exists()


def test_pruning_deletes_the_files_of_deleted_tasks(tmp_path: Path, blob: Blob) -> None:
    folder = tmp_path / "data"
    assert commands.prune_data(folder, older_than=30, json=True) == ExitCode.OK
    assert _path(folder, blob).exists()

    with contextlib.closing(sqlite3.connect(_journal(folder), isolation_level=None)) as journal:
        journal.execute("DELETE FROM tasks")
    assert commands.prune_data(folder, older_than=30, json=True) == ExitCode.OK
    assert not _path(folder, blob).parent.exists()
