"""`trunkline data` with encrypted and signed journals: check, backup, restore and rekey."""

import asyncio
import contextlib
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.journal.opening import open_journal
from harness.journal.protected import SECRET_TEXT, new_key, open_keyring, write_journal
from trunkline.cli.commands import data as commands
from trunkline.cli.exits import ExitCode
from trunkline.errors import ConfigurationError
from trunkline.journal.artifacts import Reference
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder

KEY, OTHER = new_key(), new_key()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an encrypted data directory with a journal and a file, and configure its key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_ENCRYPTION_KEY", KEY)
    folder = tmp_path / "data"
    path = folder / "journals" / "mesh.db"

    async def write() -> None:
        keyring = open_keyring(folder, KEY)
        task_ids = await write_journal(path, keyring)
        blobs = FolderBlobStore(blob_folder(path), keyring=keyring)
        await blobs.put(Reference.create(task_ids[0], "file"), SECRET_TEXT.encode())

    asyncio.run(write())
    return folder


def run(command: Callable[[], ExitCode | None]) -> tuple[ExitCode, str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = command() or ExitCode.OK
    return code, output.getvalue()


def check(folder: Path) -> dict[str, Any]:
    _, output = run(lambda: commands.check_data(folder, json=True))
    (report,) = json.loads(output)
    assert isinstance(report, dict)
    return report


def test_a_check_says_what_is_encrypted(data: Path) -> None:
    code, output = run(lambda: commands.check_data(data, json=False))
    expected = "journals/mesh.db: ok, 3 tasks, 11 events, encrypted\n"
    assert (code, output) == (ExitCode.OK, expected)


def test_a_check_names_a_changed_task(data: Path) -> None:
    connection = sqlite3.connect(data / "journals" / "mesh.db", isolation_level=None)
    ((task_id,),) = connection.execute("SELECT task_id FROM tasks WHERE number = 2").fetchall()
    connection.execute("UPDATE events SET body = CAST(body || x'00' AS BLOB) WHERE task = 2")
    connection.close()
    (problem,) = check(data)["problems"]
    assert problem.startswith(f"task {task_id}: its content was altered")


@pytest.mark.parametrize("key", ["", OTHER], ids=["no key", "another key"])
def test_every_command_says_that_the_key_is_missing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    run(lambda: commands.back_up_data(tmp_path / "copy", data, json=True))
    monkeypatch.setenv("TRUNKLINE_ENCRYPTION_KEY", key)
    refused: tuple[Callable[[], ExitCode | None], ...] = (
        lambda: commands.check_data(data, json=True),
        lambda: commands.restore_data(tmp_path / "copy", tmp_path / "new", json=True),
        lambda: commands.prune_data(data, older_than=0, json=True),
        lambda: commands.rekey_data(data, new_data_key=False, json=True),
    )
    for command in refused:
        with pytest.raises(ConfigurationError, match=r"encryption_key: is "):
            command()
    assert not (tmp_path / "new").exists()


def test_a_backup_is_encrypted_and_is_restored_with_the_key(data: Path, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    code, _ = run(lambda: commands.back_up_data(copy, data, json=True))
    assert code is ExitCode.OK
    stored = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())
    assert SECRET_TEXT.encode() not in stored
    assert check(copy)["problems"] == []
    code, _ = run(lambda: commands.restore_data(copy, new, json=True))
    assert code is ExitCode.OK
    report = check(new)
    assert (report["problems"], report["plain_rows"]) == ([], 0)

    async def read() -> str:
        journal = open_journal(new / "journals" / "mesh.db", keyring=open_keyring(new, KEY))
        (row,) = journal.list_unfinished()
        snapshot = await journal.snapshot(row.task_id)
        await journal.close()
        return snapshot.task.artifacts[0].parts[0].text

    assert asyncio.run(read()) == f"{SECRET_TEXT}more"
    assert check(new)["problems"] == []


def test_a_key_is_changed_by_rekey(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_ENCRYPTION_KEY", f"{OTHER} {KEY}")
    code, output = run(lambda: commands.rekey_data(data, new_data_key=True, json=False))
    assert code is ExitCode.OK
    assert output.startswith("2 data keys are encrypted under ")
    assert " and " in output
    monkeypatch.setenv("TRUNKLINE_ENCRYPTION_KEY", OTHER)
    code, output = run(lambda: commands.rekey_data(data, new_data_key=False, json=True))
    assert (code, len(json.loads(output)["keys"])) == (ExitCode.OK, 1)
    assert check(data)["problems"] == []
    monkeypatch.setenv("TRUNKLINE_ENCRYPTION_KEY", KEY)
    with pytest.raises(ConfigurationError, match="is encrypted under the key"):
        commands.check_data(data, json=True)


def test_pruning_leaves_a_valid_encrypted_journal(data: Path) -> None:
    code, _ = run(lambda: commands.prune_data(data, older_than=0, json=True))
    report = check(data)
    assert (code, report["tasks"], report["problems"]) == (ExitCode.OK, 1, [])
