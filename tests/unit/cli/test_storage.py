"""`trunkline data` checks, backs up, restores and prunes stored data."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.journal.builders import append, begin, completed, created
from harness.journal.opening import open_journal
from harness.journal.processes import WRITER, end, start
from harness.journal.protected import open_keyring
from harness.mesh.command_line import CompletedCommand, run_in_process
from trunkline.core.encryption import Keyring
from trunkline.errors import CursorExpiredError
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Retention
from trunkline.journal.sqlite.check import check_journal
from trunkline.tasks.outbox.webhook import DEAD, Config, Webhook, to_row

if TYPE_CHECKING:
    from subprocess import Popen


def command(*words: str | Path) -> CompletedCommand:
    return run_in_process("data", *map(str, words))


async def write(
    path: Path, *, retention: Retention | None = None, keyring: Keyring | None = None
) -> list[str]:
    """Make a journal with an ended and an unfinished task; return their ids."""
    journal = open_journal(path, retention=retention or Retention(), keyring=keyring)
    tasks = []
    for is_ended in (True, False):
        task_id = journal.new_task_id()
        await journal.create(task_id, created())
        await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x", "y")])])
        await journal.append(task_id, journal.epoch, [build_draft([append("a", "z" * 5000)])])
        if is_ended:
            await journal.append(task_id, journal.epoch, [build_draft([completed()])])
        tasks.append(task_id)
        config = Config(id="w", task_id=task_id, url="https://receiver.example", token="secret")
        await journal.webhooks.save(to_row(Webhook(config=config, state=DEAD)))
        await journal.aliases.bind("acme", f"client's {is_ended}", task_id)
    if retention is not None:
        async with asyncio.timeout(30):
            while (await journal.row(tasks[0])).first_available == 1:
                await journal.renew_lease(10.0)
                await asyncio.sleep(0)
    await journal.close()
    return tasks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a data directory with two journals, one with a compacted task, and other files."""
    folder = tmp_path_factory.mktemp("made") / "data"
    asyncio.run(write(folder / "journals" / "mesh.db"))
    asyncio.run(write(folder / "journals" / "math.db", retention=Retention(compact_after_s=0)))
    (folder / "private").mkdir(mode=0o700)
    for name in ("private/traces.db", "journals/math.db.checkpoints"):
        connection = sqlite3.connect(folder / name)
        connection.execute("CREATE TABLE rows (x)")
        connection.execute("INSERT INTO rows VALUES (7)")
        connection.commit()
        connection.close()
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """The test's own copy of the data directory."""
    return shutil.copytree(made, tmp_path / "data")


@pytest.fixture
def writer(data: Path) -> Iterator["Popen[str]"]:
    """Run a process that writes into a journal of the directory without end."""
    process = start(WRITER, data / "journals" / "live.db", "normal")
    yield process
    process.kill()
    end(process)


def run_raw(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def test_undamaged_files_are_reported_as_ok(data: Path) -> None:
    process = command("check", "--data", data)
    assert (process.exit, process.err) == (0, "")
    assert process.out.splitlines() == [
        "journals/math.db: ok, 2 tasks, 9 events",
        "journals/math.db.checkpoints: ok",
        "journals/mesh.db: ok, 2 tasks, 9 events",
        "private/traces.db: ok",
    ]
    reports = json.loads(command("check", "--data", data, "--json").out)
    assert [report["problems"] for report in reports] == [[], [], [], []]
    assert reports[0]["tasks"] == 2


def test_a_journal_that_is_being_written_is_checked_and_copied(
    data: Path, tmp_path: Path, writer: "Popen[str]"
) -> None:
    assert writer.stdout is not None
    task_id = writer.stdout.readline().strip()
    for _ in range(200):
        last_number = writer.stdout.readline()
    process = command("check", "--data", data)
    assert f"in use by process {writer.pid}" in process.out
    assert (process.exit, process.err) == (0, "")
    assert command("backup", tmp_path / "copy", "--data", data).exit == 0
    assert writer.poll() is None
    assert asyncio.run(numbers(tmp_path / "copy" / "journals" / "live.db", task_id)) >= int(
        last_number
    )


async def numbers(path: Path, task_id: str) -> int:
    """Return the last of the numbers in a task, and check that there are no gaps."""
    journal = open_journal(path)
    text = (await journal.snapshot(task_id)).task.artifacts[0].parts[0].text
    await journal.close()
    reports = [int(word) for word in text.split()]
    assert reports == list(range(len(reports)))
    return reports[-1]


HARMS = {
    "a batch that can't be read": "UPDATE events SET body = x'00000002ffff' WHERE sequence = 3",
    "a truncated batch": "UPDATE events SET body = substr(body, 1, 20) WHERE sequence = 3",
    "a gap between sequences": "DELETE FROM events WHERE sequence = 3",
    "events of no task": "UPDATE events SET task = 9 WHERE task = 1",
    "a state that the events don't have": "UPDATE tasks SET state = 1",
    "a head that the events don't reach": "UPDATE tasks SET head = 99",
    "another account": "UPDATE tasks SET account = 'theirs'",
    "a webhook that can't be read": "UPDATE webhooks SET content = x'ffff'",
    "a webhook of no task": "UPDATE webhooks SET task_id = 'x' WHERE number = 1",
}


@pytest.mark.parametrize("harm", list(HARMS.values()), ids=list(HARMS))
def test_damage_is_found_and_the_other_journals_are_checked(data: Path, harm: str) -> None:
    run_raw(data / "journals" / "mesh.db", harm)
    process = command("check", "--data", data)
    assert (process.exit, process.err) == (1, "")
    lines = process.out.splitlines()
    assert lines[0] == "journals/math.db: ok, 2 tasks, 9 events"
    assert lines[2].startswith("journals/mesh.db: DAMAGED: ")
    assert lines[2].endswith("restore a backup, or move it away: the other journals stay usable")


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM folds",
        "UPDATE folds SET snapshot = x'ffff'",
        "UPDATE tasks SET head = 7 WHERE stage > 0",
    ],
)
def test_damage_of_a_compacted_task_is_found(data: Path, harm: str) -> None:
    run_raw(data / "journals" / "math.db", harm)
    process = command("check", "--data", data)
    assert process.exit == 1
    assert process.out.startswith("journals/math.db: DAMAGED: task ")


@pytest.mark.parametrize("fraction", [0.5, 0.1, 0.0])
def test_a_truncated_file_is_found(data: Path, fraction: float) -> None:
    path = data / "journals" / "mesh.db"
    content = path.read_bytes()
    path.write_bytes(b"SQLite format 3\0" + content[16 : max(100, int(len(content) * fraction))])
    process = command("check", "--data", data)
    assert (process.exit, process.err) == (1, "")
    assert "journals/mesh.db: DAMAGED: " in process.out


def test_overwritten_bytes_never_crash_the_check(data: Path) -> None:
    path = data / "journals" / "mesh.db"
    content = path.read_bytes()
    damaged_count = 0
    for offset in range(20, len(content), len(content) // 150):
        path.write_bytes(content[:offset] + b"\xff\x00\xff\x7f" + content[offset + 4 :])
        damaged_count += bool(check_journal(path).problems)
    assert damaged_count > 5


def test_a_restored_backup_equals_the_original(data: Path, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    assert command("backup", copy, "--data", data).exit == 0
    process = command("restore", copy, "--data", new)
    assert (process.exit, process.err) == (0, "")
    assert command("check", "--data", new).out == command("check", "--data", data).out
    assert not list(tmp_path.glob(".new*"))
    connection = sqlite3.connect(new / "journals" / "math.db.checkpoints")
    assert connection.execute("SELECT x FROM rows").fetchone() == (7,)
    connection.close()
    asyncio.run(compare(data / "journals" / "mesh.db", new / "journals" / "mesh.db"))


async def compare(first: Path, second: Path) -> None:
    """Check that both hold the same tasks, and that the second refuses cursors of later events."""
    original, restored = open_journal(first), open_journal(second)
    (row,) = original.list_unfinished()
    assert await original.snapshot(row.task_id) == await restored.snapshot(row.task_id)
    assert restored.epoch == original.epoch + 1
    assert await restored.webhooks.find() == await original.webhooks.find() != []
    assert await restored.aliases.find("acme", "client's False") == row.task_id
    for journal in (original, restored):
        await journal.append(row.task_id, journal.epoch, [build_draft([append("a", "later")])])
    (later,) = await original.read(row.task_id, row.head)
    with pytest.raises(CursorExpiredError):
        await restored.check_cursor(row.task_id, row.head + 1, parse_header(later).epoch)
    await original.close()
    await restored.close()


def test_existing_data_is_not_overwritten(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert command("backup", copy, "--data", data).exit == 0
    for process in (
        command("backup", copy, "--data", data),
        command("restore", copy, "--data", data),
    ):
        assert process.exit == 1
        assert "is not empty" in process.err
        assert process.err.count("\n") == 1


def test_an_invalid_or_damaged_backup_is_not_restored(data: Path, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    process = command("restore", tmp_path / "nothing", "--data", new)
    assert (process.exit, "is not a backup" in process.err) == (1, True)
    command("backup", copy, "--data", data)
    run_raw(copy / "journals" / "mesh.db", "UPDATE tasks SET head = 99")
    process = command("restore", copy, "--data", new)
    assert (process.exit, "is damaged" in process.err) == (1, True)
    assert not new.exists()


def test_pruning_deletes_old_ended_tasks_and_shrinks_the_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = data / "journals" / "mesh.db"
    asyncio.run(write(path, keyring=open_keyring(data)))
    assert "0 tasks forgotten, 0 compacted" in command("prune", "--data", data).out
    before_bytes = path.stat().st_size
    process = command("prune", "--data", data, "--older-than", "0")
    assert (process.exit, process.err) == (0, "")
    assert process.out.startswith("journals/mesh.db: 1 tasks forgotten, 1 compacted, ")
    assert path.stat().st_size < before_bytes
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM webhooks").fetchone() == (1,)
    assert connection.execute("SELECT alias FROM aliases").fetchall() == [("client's False",)]
    connection.close()
    assert "ok, 1 tasks, 4 events" in command("check", "--data", data).out


def test_pruning_skips_a_journal_in_use(data: Path, writer: "Popen[str]") -> None:
    assert writer.stdout is not None
    writer.stdout.readline()
    process = command("prune", "--data", data, "--older-than", "0", "--json")
    assert process.exit == 4
    assert f"process {writer.pid} has it open; stop it" in process.err
    assert [report["file"] for report in json.loads(process.out)] == [
        "journals/math.db",
        "journals/mesh.db",
    ]
    assert writer.poll() is None


def test_pruning_leaves_an_orphaned_journal_orphaned(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = data / "journals" / "live.db"
    process = start(WRITER, path, "normal")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    end(process)
    assert command("prune", "--data", data).exit == 0
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT owner_pid FROM meta").fetchone() != (0,)
    connection.close()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    for words in (("check",), ("prune",), ("backup", tmp_path / "copy")):
        process = command(*words, "--data", tmp_path / "nowhere")
        assert (process.exit, "is not a folder" in process.err) == (1, True)
    assert list(tmp_path.iterdir()) == []
