"""Takeovers of journals whose process died, or is frozen past its lease."""

import errno
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.journal.builders import append
from harness.journal.opening import open_journal, take_over_journal
from harness.journal.processes import WRITER, end, end_lease, freeze, read_rest, start, start_owner
from trunkline.core.database import find_holder, kill_holder
from trunkline.core.database.process import OwnerProcess
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import build_draft
from trunkline.journal.sqlite import SqliteStore, find_orphaned_journals
from trunkline.journal.sqlite import store as sqlite_store
from trunkline.journal.sqlite.inspection import delete_if_empty, is_leased

if TYPE_CHECKING:
    import subprocess

# Takes a journal over on request and prints the result.
TAKER = """
import sys
from pathlib import Path
from trunkline.errors import JournalUnavailableError
from harness.journal.opening import take_over_journal

print("ready", flush=True)
sys.stdin.readline()
try:
    journal = take_over_journal(Path(sys.argv[1]))
    print("epoch", journal.epoch, flush=True)
except JournalUnavailableError as error:
    print("refused", error.problem, flush=True)
sys.stdin.read()
"""

# Makes tasks of three agents, ends the last one, and prints a line.
FINISHER = """
import asyncio, sys
from pathlib import Path
from harness.journal.builders import completed, created
from trunkline.journal.events import build_draft
from harness.journal.opening import open_journal

async def main():
    journal = open_journal(Path(sys.argv[1]))
    for agent in ("math", "math", "echo", "currency"):
        task_id = journal.new_task_id()
        await journal.create(task_id, created(agent=agent))
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    print("written", flush=True)

asyncio.run(main())
sys.stdin.read()
"""

# Locks a whole file, as another program may, and prints a line.
WHOLE_FILE_LOCKER = """
import fcntl, sys

file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""

# Locks a journal without becoming its owner, and prints a line.
LOCKER = """
import sys
from pathlib import Path
from trunkline.core.database import FileLock

lock = FileLock.acquire(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""

# Locks a journal, forks a child that closes its copy of the lock, and prints a line.
CLOSING_FORKER = """
import os, sys
from pathlib import Path
from trunkline.core.database import FileLock

lock = FileLock.acquire(Path(sys.argv[1]))
if (child := os.fork()) == 0:
    lock.close()
    os._exit(0)
os.waitpid(child, 0)
print("closed", flush=True)
sys.stdin.read()
"""

# Opens a journal and forks a child that outlives it; prints the child's pid.
FORKER = """
import os, sys, time
from pathlib import Path
from harness.journal.opening import open_journal

journal = open_journal(Path(sys.argv[1]))
if (child := os.fork()) == 0:
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    while True:
        time.sleep(60)
print(child, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def frozen_owner(path: Path) -> Iterator[tuple["subprocess.Popen[str]", str, int]]:
    """Freeze a process past its lease; its journal holds a task of three events."""
    process, task_id, epoch = start_owner(path)
    freeze(process)
    end_lease(path)
    yield process, task_id, epoch
    process.kill()
    end(process)


def test_a_journal_whose_lease_holds_is_not_taken_over(path: Path) -> None:
    process, _, _ = start_owner(path)
    with pytest.raises(JournalUnavailableError, match="its lease holds"):
        take_over_journal(path)
    assert process.poll() is None
    assert find_orphaned_journals(path.parent) == []
    end(process)
    # The lease protects the journal until it ends, although the process is dead.
    with pytest.raises(JournalUnavailableError, match="its lease holds"):
        take_over_journal(path)


def test_a_journal_is_not_opened_while_a_known_lease_holds(path: Path) -> None:
    process, _, _ = start_owner(path)
    known_leases: dict[Path, float] = {}
    assert find_orphaned_journals(path.parent, leases=known_leases) == []
    assert known_leases[path] > time.monotonic()
    end(process)
    end_lease(path)
    assert find_orphaned_journals(path.parent, leases=known_leases) == []
    known_leases[path] = time.monotonic()
    assert [orphan.name for orphan in find_orphaned_journals(path.parent, leases=known_leases)] == [
        path.stem
    ]


async def test_a_frozen_owner_is_killed_and_its_journal_taken_over_completely(
    path: Path,
    frozen_owner: tuple["subprocess.Popen[str]", str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    process, task_id, epoch = frozen_owner
    (orphan,) = find_orphaned_journals(path.parent)
    assert (orphan.name, orphan.agents) == (path.stem, frozenset({"echo"}))
    assert not orphan.is_only_waiting
    assert 1 <= orphan.lost_for_s < 600
    journal = take_over_journal(path)
    assert process.wait(timeout=60) == -signal.SIGKILL
    # The frozen process could not log this.
    (record,) = [log_record for log_record in caplog.records if log_record.message == "host.killed"]
    assert (vars(record)["pid"], "lease is over" in vars(record)["reason"]) == (process.pid, True)
    assert (journal.id, journal.epoch) == (orphan.journal_id, epoch + 1)
    assert await journal.head(task_id) == 3
    assert await journal.append(task_id, journal.epoch, [build_draft([append("a", "z")])]) == 4
    assert find_orphaned_journals(path.parent) == []
    await journal.close()


async def test_a_takeover_from_a_frozen_writer_loses_no_acknowledged_event(
    path: Path,
) -> None:
    process = start(WRITER, path, "normal")
    assert process.stdout is not None
    task_id = process.stdout.readline().strip()
    for _ in range(50):
        process.stdout.readline()
    # The owner never renews its lease. If it froze in the middle of a write, it would block this
    # update.
    end_lease(path)
    freeze(process)
    journal = take_over_journal(path)
    reported = [int(line) for line in read_rest(process).splitlines()]
    text = (await journal.snapshot(task_id)).task.artifacts[0].parts[0].text
    numbers = [int(word) for word in text.split()]
    assert numbers == list(range(await journal.head(task_id) - 1))
    assert numbers[-1] >= max(reported, default=50)
    await journal.close()


def test_of_concurrent_takeovers_one_succeeds(
    path: Path, frozen_owner: tuple["subprocess.Popen[str]", str, int]
) -> None:
    _, _, epoch = frozen_owner
    claimants = [start(TAKER, path) for _ in range(3)]
    for claimant in claimants:
        assert claimant.stdout is not None
        assert claimant.stdout.readline() == "ready\n"
    for claimant in claimants:
        assert claimant.stdin is not None
        claimant.stdin.write("\n")
        claimant.stdin.flush()
    outputs = [claimant.stdout.readline() for claimant in claimants if claimant.stdout is not None]
    for claimant in claimants:
        claimant.kill()
        end(claimant)
    assert sorted(outputs)[0] == f"epoch {epoch + 1}\n"
    assert all(output.startswith("refused") for output in sorted(outputs)[1:])


async def test_no_process_kills_itself_for_a_journal(path: Path) -> None:
    store = SqliteStore.open(path)
    end_lease(path)
    assert find_orphaned_journals(path.parent) == []
    with pytest.raises(JournalUnavailableError, match="this process has it open"):
        SqliteStore.take_over(path)
    await store.close()


def test_a_missing_journal_is_not_taken_over(path: Path) -> None:
    with pytest.raises(JournalUnavailableError, match="can't be opened"):
        take_over_journal(path)
    assert not path.exists()


async def test_a_lease_from_before_a_reboot_has_expired(path: Path) -> None:
    process, _, _ = start_owner(path)
    end(process)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(
        "UPDATE meta SET owner_started = 'earlier/1', lease_until_s = ?",
        (time.monotonic() + 1e6,),
    )
    connection.close()
    (orphan,) = find_orphaned_journals(path.parent)
    assert orphan.lost_for_s > 0
    await take_over_journal(path).close()


def test_the_search_for_orphans_skips_files_that_are_no_journals(path: Path) -> None:
    (path.parent / "text.db").write_text("no database " * 1000)
    (path.parent / "empty.db").write_text("")
    process, _, _ = start_owner(path)
    end(process)
    end_lease(path)
    assert [orphan.name for orphan in find_orphaned_journals(path.parent)] == [path.stem]
    assert find_orphaned_journals(path.parent / "nowhere") == []


def test_agents_of_an_orphan_are_those_of_unfinished_tasks(path: Path) -> None:
    process = start(FINISHER, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    end(process)
    end_lease(path)
    (orphan,) = find_orphaned_journals(path.parent)
    assert orphan.agents == {"math", "echo"}


async def test_a_process_that_a_journal_names_is_not_killed(path: Path) -> None:
    owner, _, _ = start_owner(path)
    end(owner)
    bystander = start("import sys; sys.stdin.read()", path)
    named = OwnerProcess.from_pid(bystander.pid)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        statement = "UPDATE meta SET owner_pid = ?, owner_started = ?, lease_until_s = 0"
        file.execute(statement, (named.pid, named.started))
    await take_over_journal(path).close()
    assert bystander.poll() is None
    end(bystander)


async def test_a_journal_of_an_earlier_version_is_not_opened_while_its_lease_holds(
    path: Path,
) -> None:
    journal = open_journal(path)
    epoch = journal.epoch
    await journal.close()
    # Processes of earlier versions lock no journals.
    process = start("import sys; sys.stdin.read()", path)
    owner = OwnerProcess.from_pid(process.pid)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        statement = "UPDATE meta SET owner_pid = ?, owner_started = ?, lease_until_s = ?"
        file.execute(statement, (owner.pid, owner.started, time.monotonic() + 1000))
    with pytest.raises(JournalUnavailableError, match=f"process {process.pid} of an earlier"):
        open_journal(path)
    with pytest.raises(JournalUnavailableError, match="its lease holds"):
        take_over_journal(path)
    with pytest.raises(JournalUnavailableError, match="of an earlier version"):
        delete_if_empty(path)
    assert is_leased(path.parent, journal.id)
    assert process.poll() is None
    end_lease(path)
    journal = take_over_journal(path)
    assert journal.epoch == epoch + 1
    assert process.poll() is None
    await journal.close()
    end(process)


async def test_a_dead_process_of_an_earlier_version_does_not_keep_its_journal(path: Path) -> None:
    await open_journal(path).close()
    process = start("import sys; sys.stdin.read()", path)
    owner = OwnerProcess.from_pid(process.pid)
    end(process)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        statement = "UPDATE meta SET owner_pid = ?, owner_started = ?, lease_until_s = ?"
        file.execute(statement, (owner.pid, owner.started, time.monotonic() + 1000))
    async with open_journal(path) as journal:
        assert not journal.list_unfinished()


def test_a_process_that_locks_another_file_is_not_killed(path: Path) -> None:
    owner, _, _ = start_owner(path)
    end(owner)
    end_lease(path)
    foreign = path.with_name("foreign")
    bystander = start(WHOLE_FILE_LOCKER, foreign)
    assert bystander.stdout is not None
    assert bystander.stdout.readline() == "locked\n"
    lock = Path(f"{path}.lock")
    lock.unlink()
    lock.symlink_to(foreign)
    with pytest.raises(JournalUnavailableError, match="remove that link"):
        take_over_journal(path)
    lock.unlink()
    lock.hardlink_to(foreign)
    kill_holder(path, OwnerProcess.from_pid(bystander.pid))
    assert find_holder(path) == OwnerProcess(0, "")
    assert bystander.poll() is None
    end(bystander)


def test_a_lock_that_changed_hands_kills_nobody(path: Path) -> None:
    process, _, _ = start_owner(path)
    kill_holder(path, OwnerProcess(process.pid, "another boot/1"))
    kill_holder(path, OwnerProcess(0, ""))
    assert process.poll() is None
    end(process)
    assert find_holder(path) is None
    kill_holder(path, OwnerProcess(process.pid, "another boot/1"))


async def test_without_process_descriptors_the_holder_is_killed_by_its_pid(
    path: Path,
    frozen_owner: tuple["subprocess.Popen[str]", str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    await take_over_journal(path).close()
    assert frozen_owner[0].wait(timeout=60) == -signal.SIGKILL


def test_a_holder_without_a_process_descriptor_is_not_killed(
    path: Path,
    frozen_owner: tuple["subprocess.Popen[str]", str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    process = frozen_owner[0]
    with pytest.raises(
        JournalUnavailableError, match=f"process {process.pid} has it and can't be killed: too many"
    ):
        take_over_journal(path)
    assert process.poll() is None


async def test_a_process_that_locks_a_journal_and_does_not_claim_it_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _, _ = start_owner(path)
    end(owner)
    end_lease(path)
    locker = start(LOCKER, path)
    assert locker.stdout is not None
    assert locker.stdout.readline() == "locked\n"
    freeze(locker)
    with pytest.raises(JournalUnavailableError, match=f"process {locker.pid} has it open"):
        open_journal(path)
    monkeypatch.setattr(sqlite_store, "_CLAIM_S", 0.0)
    await take_over_journal(path).close()
    assert locker.wait(timeout=60) == -signal.SIGKILL
    end(locker)


async def test_a_lock_file_is_gone_after_a_release(path: Path) -> None:
    journal = open_journal(path)
    assert Path(f"{path}.lock").stat().st_mode & 0o777 == 0o600  # noqa: ASYNC240
    with pytest.raises(JournalUnavailableError, match=f"process {os.getpid()} has it open"):
        open_journal(path)
    await journal.close()
    assert not Path(f"{path}.lock").exists()  # noqa: ASYNC240
    await open_journal(path).close()


def test_a_forked_child_does_not_hold_its_parents_journal(path: Path) -> None:
    process = start(FORKER, path)
    assert process.stdout is not None
    child_pid = int(process.stdout.readline())
    holder = find_holder(path)
    assert holder is not None
    assert holder.pid == process.pid
    process.kill()
    process.wait(timeout=60)
    assert find_holder(path) is None
    os.kill(child_pid, signal.SIGKILL)
    end(process)


def test_a_forked_child_does_not_close_its_parents_lock(path: Path) -> None:
    process = start(CLOSING_FORKER, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "closed\n"
    holder = find_holder(path)
    end(process)
    assert holder is not None
    assert holder.pid == process.pid


async def test_a_journal_that_cannot_be_read_at_takeover_remains_orphaned(
    path: Path, frozen_owner: tuple["subprocess.Popen[str]", str, int]
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("ALTER TABLE events RENAME TO away")
    with pytest.raises(JournalUnavailableError):
        take_over_journal(path)
    (orphan,) = find_orphaned_journals(path.parent)
    assert not orphan.is_only_waiting
    # The cause may pass: a disk that fails, too many open files.
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("ALTER TABLE away RENAME TO events")
    journal = take_over_journal(path)
    assert await journal.head(frozen_owner[1]) == 3
    await journal.close()
