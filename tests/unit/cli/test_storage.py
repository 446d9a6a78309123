"""`trunkline data`: what is kept is checked, copied, brought back and trimmed."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.journal.builders import append, begin, completed, created
from harness.journal.processes import WRITER, end, start
from trunkline.errors import CursorExpiredError
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Journal, Retention
from trunkline.journal.sqlite.check import check_journal
from trunkline.tasks.outbox.webhook import DEAD, Config, Webhook, to_row


def command(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "trunkline.cli", "data", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def write(path: Path, *, retention: Retention | None = None) -> list[str]:
    """Make a journal with a task that has ended and one that has not; their ids."""
    journal = Journal.open(path, retention=retention or Retention())
    tasks = []
    for ends in (True, False):
        task_id = journal.new_task_id()
        await journal.create(task_id, created())
        await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x", "y")])])
        await journal.append(task_id, journal.epoch, [build_draft([append("a", "z" * 5000)])])
        if ends:
            await journal.append(task_id, journal.epoch, [build_draft([completed()])])
        tasks.append(task_id)
        config = Config(id="w", task_id=task_id, url="https://receiver.example", token="secret")
        await journal.webhooks.save(to_row(Webhook(config=config, state=DEAD)))
        await journal.aliases.bind("acme", f"client's {ends}", task_id)
    if retention is not None:
        async with asyncio.timeout(30):
            while journal.first_available(tasks[0]) == 1:
                journal.renew_lease(10.0)
                await asyncio.sleep(0)
    journal.close()
    return tasks


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: two journals, one of them with a compacted task, and other files."""
    folder = tmp_path / "data"
    asyncio.run(write(folder / "journals" / "mesh.db"))
    asyncio.run(write(folder / "journals" / "math.db", retention=Retention(compact_after_s=0)))
    for name in ("traces.db", "journals/math.db.checkpoints"):
        connection = sqlite3.connect(folder / name)
        connection.execute("CREATE TABLE kept (x)")
        connection.execute("INSERT INTO kept VALUES (7)")
        connection.commit()
        connection.close()
    return folder


@pytest.fixture
def writing(data: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that writes into a journal there without end."""
    process = start(WRITER, data / "journals" / "live.db", "normal")
    yield process
    process.kill()
    end(process)


def raw(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def test_what_is_sound_is_said_to_be_so(data: Path) -> None:
    done = command("check", "--data", data)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "journals/math.db: ok, 2 tasks, 9 events",
        "journals/math.db.checkpoints: ok",
        "journals/mesh.db: ok, 2 tasks, 9 events",
        "traces.db: ok",
    ]
    found = json.loads(command("check", "--data", data, "--json").stdout)
    assert [one["problems"] for one in found] == [[], [], [], []]
    assert found[0]["tasks"] == 2


def test_a_journal_that_is_being_written_is_checked_and_copied(
    data: Path, tmp_path: Path, writing: "subprocess.Popen[str]"
) -> None:
    assert writing.stdout is not None
    task_id = writing.stdout.readline().strip()
    for _ in range(200):
        told = writing.stdout.readline()
    done = command("check", "--data", data)
    assert f"in use by process {writing.pid}" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert command("backup", tmp_path / "copy", "--data", data).returncode == 0
    assert writing.poll() is None
    assert asyncio.run(numbers(tmp_path / "copy" / "journals" / "live.db", task_id)) >= int(told)


async def numbers(path: Path, task_id: str) -> int:
    """The last of the numbers in a task, which have no gaps."""
    journal = Journal.open(path)
    text = (await journal.snapshot(task_id)).task.artifacts[0].parts[0].text
    journal.close()
    found = [int(word) for word in text.split()]
    assert found == list(range(len(found)))
    return found[-1]


HARMS = {
    "a batch that can't be read": "UPDATE commits SET payload = x'00000002ffff' WHERE id = 2",
    "a commit that is cut off": "UPDATE commits SET payload = substr(payload, 1, 20) WHERE id = 3",
    "a gap between sequences": "DELETE FROM commits WHERE id = 2",
    "a state that the events don't have": "UPDATE tasks SET state = 1",
    "a head that the events don't reach": "UPDATE tasks SET head = 99",
    "another account": "UPDATE tasks SET account = 'theirs'",
    "a webhook that can't be read": "UPDATE webhooks SET content = x'ffff'",
    "a webhook of no task": "UPDATE webhooks SET task_id = 'x' WHERE number = 1",
}


@pytest.mark.parametrize("harm", list(HARMS.values()), ids=list(HARMS))
def test_damage_is_found_and_the_other_journals_are_checked(data: Path, harm: str) -> None:
    raw(data / "journals" / "mesh.db", harm)
    done = command("check", "--data", data)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
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
    raw(data / "journals" / "math.db", harm)
    done = command("check", "--data", data)
    assert done.returncode == 1
    assert done.stdout.startswith("journals/math.db: DAMAGED: task ")


@pytest.mark.parametrize("kept", [0.5, 0.1, 0.0])
def test_a_file_that_is_cut_off_is_found(data: Path, kept: float) -> None:
    path = data / "journals" / "mesh.db"
    content = path.read_bytes()
    path.write_bytes(b"SQLite format 3\0" + content[16 : max(100, int(len(content) * kept))])
    done = command("check", "--data", data)
    assert (done.returncode, done.stderr) == (1, "")
    assert "journals/mesh.db: DAMAGED: " in done.stdout


def test_flipped_bytes_anywhere_never_end_in_a_crash(data: Path) -> None:
    path = data / "journals" / "mesh.db"
    content = path.read_bytes()
    damaged = 0
    for place in range(20, len(content), len(content) // 150):
        path.write_bytes(content[:place] + b"\xff\x00\xff\x7f" + content[place + 4 :])
        damaged += bool(check_journal(path).problems)
    assert damaged > 5


def test_what_was_backed_up_comes_back_as_it_was(data: Path, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    assert command("backup", copy, "--data", data).returncode == 0
    done = command("restore", copy, "--data", new)
    assert (done.returncode, done.stderr) == (0, "")
    assert command("check", "--data", new).stdout == command("check", "--data", data).stdout
    assert not list(tmp_path.glob(".new*"))
    connection = sqlite3.connect(new / "journals" / "math.db.checkpoints")
    assert connection.execute("SELECT x FROM kept").fetchone() == (7,)
    connection.close()
    asyncio.run(compare(data / "journals" / "mesh.db", new / "journals" / "mesh.db"))


async def compare(first: Path, second: Path) -> None:
    """Both hold the same tasks; readers of what the first wrote later are told by the second."""
    was, now = Journal.open(first), Journal.open(second)
    (row,) = was.list_unfinished()
    assert await was.snapshot(row.task_id) == await now.snapshot(row.task_id)
    assert now.epoch == was.epoch + 1
    assert now.webhooks.find() == was.webhooks.find() != []
    assert now.aliases.find("acme", "client's False") == row.task_id
    for one in (was, now):
        await one.append(row.task_id, one.epoch, [build_draft([append("a", "later")])])
    (later,) = was.read(row.task_id, row.head)
    with pytest.raises(CursorExpiredError):
        now.check_cursor(row.task_id, row.head + 1, parse_header(later).epoch)
    was.close()
    now.close()


def test_nothing_is_written_over(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert command("backup", copy, "--data", data).returncode == 0
    for done in (command("backup", copy, "--data", data), command("restore", copy, "--data", data)):
        assert done.returncode == 1
        assert "is not empty" in done.stderr
        assert done.stderr.count("\n") == 1


def test_what_is_no_backup_or_damaged_is_not_restored(data: Path, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    done = command("restore", tmp_path / "nothing", "--data", new)
    assert (done.returncode, "is not a backup" in done.stderr) == (1, True)
    command("backup", copy, "--data", data)
    raw(copy / "journals" / "mesh.db", "UPDATE tasks SET head = 99")
    done = command("restore", copy, "--data", new)
    assert (done.returncode, "is damaged" in done.stderr) == (1, True)
    assert not new.exists()


def test_pruning_forgets_what_ended_long_ago_and_shrinks_the_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = data / "journals" / "mesh.db"
    asyncio.run(write(path))
    assert "0 tasks forgotten, 0 compacted" in command("prune", "--data", data).stdout
    before_bytes = path.stat().st_size
    done = command("prune", "--data", data, "--older-than", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("journals/mesh.db: 1 tasks forgotten, 1 compacted, ")
    assert path.stat().st_size < before_bytes
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM webhooks").fetchone() == (1,)
    assert connection.execute("SELECT alias FROM aliases").fetchall() == [("client's False",)]
    connection.close()
    assert "ok, 1 tasks, 4 events" in command("check", "--data", data).stdout


def test_pruning_leaves_alone_what_is_in_use(data: Path, writing: "subprocess.Popen[str]") -> None:
    assert writing.stdout is not None
    writing.stdout.readline()
    done = command("prune", "--data", data, "--older-than", "0", "--json")
    assert done.returncode == 4
    assert f"process {writing.pid} has it open; stop it" in done.stderr
    assert [one["file"] for one in json.loads(done.stdout)] == [
        "journals/math.db",
        "journals/mesh.db",
    ]
    assert writing.poll() is None


def test_a_journal_that_was_lost_is_still_so_when_it_was_pruned(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = data / "journals" / "live.db"
    process = start(WRITER, path, "normal")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    end(process)
    assert command("prune", "--data", data).returncode == 0
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT owner_pid FROM meta").fetchone() != (0,)
    connection.close()


def test_a_folder_that_is_none_is_said_to_be_so(tmp_path: Path) -> None:
    for words in (("check",), ("prune",), ("backup", tmp_path / "copy")):
        done = command(*words, "--data", tmp_path / "nowhere")
        assert (done.returncode, "is not a folder" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
