"""An encrypted journal shows no content, and is read only with its keyring."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from harness.journal.builders import append, completed, created
from harness.journal.opening import open_journal
from harness.journal.processes import end, start
from harness.journal.protected import (
    SECRET_TEXT,
    SECRET_TOKEN,
    new_key,
    open_keyring,
    write_journal,
    write_task,
)
from trunkline.core.encryption import keyring_path, rewrap
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.catalog import OrphanedJournal
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite import SqliteStore
from trunkline.journal.sqlite.check import check_journal
from trunkline.journal.store import OrphanedChild
from trunkline.processes.journals import HostJournals
from trunkline.tasks.outbox.webhook import from_row

KEY, OTHER = new_key(), new_key()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "journals").mkdir(parents=True)
    return tmp_path / "data"


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "journals" / "mesh.db"


async def read(journal: Journal, task_ids: list[str]) -> None:
    """Check that all content of `write_journal` can be read."""
    for task_id in task_ids:
        snapshot = await journal.snapshot(task_id)
        assert snapshot.task.artifacts[0].parts[0].text == f"{SECRET_TEXT}more"
        assert (await journal.row(task_id)).metadata == snapshot.task.metadata.SerializeToString()
        (row,) = await journal.webhooks.find(task_id=task_id)
        assert from_row(row).config.token == SECRET_TOKEN


async def test_the_file_shows_no_content(folder: Path, path: Path) -> None:
    task_ids = await write_journal(path, open_keyring(folder, KEY))
    stored = b"".join(file.read_bytes() for file in path.parent.iterdir())
    for secret in (SECRET_TEXT, SECRET_TOKEN, "hook.example", "hello"):
        assert secret.encode() not in stored
    journal = open_journal(path, keyring=open_keyring(folder, KEY))
    await read(journal, task_ids)
    assert len(await journal._store.list_unfinished()) == 1
    await journal.close()
    report = check_journal(path, open_keyring(folder, KEY))
    assert (report.problems, report.plain_count) == ([], 0)
    assert report.encrypted_count > 0


async def test_statements_of_users_are_encrypted(folder: Path, path: Path) -> None:
    store = SqliteStore.open(path, keyring=open_keyring(folder, KEY))
    child = OrphanedChild("child-1", "acme", 1.0, "a signed statement")
    await store.add_orphaned_child(child)
    stored = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert child.user_statement.encode() not in stored
    assert await store.list_orphaned_children() == [child]
    await store.close()


async def test_plain_content_is_encrypted_when_a_key_is_set(folder: Path, path: Path) -> None:
    plain = await write_journal(path, open_keyring(folder))
    keyring = open_keyring(folder, KEY)
    before = check_journal(path, keyring)
    assert (before.problems, before.encrypted_count) == ([], 0)
    journal = open_journal(path, keyring=keyring)
    encrypted = await write_task(journal, is_ended=False)
    await read(journal, [*plain, encrypted])
    await journal.close()
    report = check_journal(path, keyring)
    assert (report.problems, report.plain_count) == ([], 0)
    assert report.encrypted_count > before.plain_count
    stored = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert SECRET_TEXT.encode() not in stored


async def test_a_lost_key_or_keyring_is_reported_at_the_start(folder: Path, path: Path) -> None:
    await write_journal(path, open_keyring(folder, KEY))
    for key in ("", OTHER):
        settings = Settings(data_dir=folder, encryption_key=key)
        with pytest.raises(ConfigurationError, match="is encrypted under the key"):
            await HostJournals(settings, None).open_own("mesh", {"echo"})
    keyring_path(folder).unlink()
    for key in ("", OTHER, KEY):
        settings = Settings(data_dir=folder, encryption_key=key)
        with pytest.raises(ConfigurationError, match="restore the keyring that belongs to"):
            await HostJournals(settings, None).open_own("mesh", {"echo"})
        keyring_path(folder).unlink(missing_ok=True)
    assert [file.name for file in path.parent.iterdir()] == ["mesh.db"]
    with pytest.raises(ConfigurationError, match="restore the keyring"):
        open_journal(path)
    assert any("has no keyring" in problem for problem in check_journal(path).problems)


async def test_a_running_host_goes_on_without_a_journal_of_another_key(
    folder: Path, path: Path
) -> None:
    await write_journal(path, open_keyring(folder, KEY))
    keyring_path(folder).unlink()
    journals = HostJournals(Settings(data_dir=folder, encryption_key=OTHER), None)
    orphan = OrphanedJournal("mesh", "", 60.0, frozenset())
    with pytest.raises(JournalUnavailableError, match="restore the keyring"):
        await journals.take_over(orphan)
    assert [file.name for file in path.parent.glob("*.db")] == ["mesh.db"]


async def test_keys_are_rotated_under_a_running_host(folder: Path, path: Path) -> None:
    keyring = open_keyring(folder, KEY)
    journal = open_journal(path, keyring=keyring)
    task_id = await write_task(journal, is_ended=False)
    both = Settings(data_dir=folder, encryption_key=f"{OTHER} {KEY}")
    new_id = rewrap(both, with_new_data_key=True).data_keys[-1].id
    assert keyring.current_id != new_id
    await journal.renew_lease(10.0)
    assert keyring.current_id == new_id
    await journal.append(task_id, journal.epoch, [build_draft([append("a", "later")])])
    rewrap(Settings(data_dir=folder, encryption_key=OTHER), with_new_data_key=False)
    await journal.renew_lease(10.0)
    await journal.append(task_id, journal.epoch, [build_draft([append("a", "latest")])])
    await journal.close()
    journal = open_journal(path, keyring=open_keyring(folder, OTHER))
    text = (await journal.snapshot(task_id)).task.artifacts[0].parts[0].text
    assert text == f"{SECRET_TEXT}morelaterlatest"
    await journal.close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from harness.journal.builders import append, completed, created
from harness.journal.protected import open_keyring, write_task
from trunkline.journal.events import build_draft
from harness.journal.opening import open_journal

async def main():
    path = Path(sys.argv[1])
    journal = open_journal(path, keyring=open_keyring(path.parent.parent, sys.argv[2]))
    task_id = await write_task(journal, is_ended=False)
    print(task_id, flush=True)
    while True:
        await journal.append(task_id, journal.epoch, [build_draft([append("a", "z")])])
        await write_task(journal, is_ended=True)
        await journal.renew_lease(10.0)
        print("written", flush=True)

asyncio.run(main())
"""


def test_a_killed_host_leaves_a_journal_without_problems(folder: Path, path: Path) -> None:
    process = start(_WRITER, path, KEY)
    assert process.stdout is not None
    task_id = process.stdout.readline().strip()
    for _ in range(30):
        process.stdout.readline()
    process.kill()
    end(process)
    assert check_journal(path, open_keyring(folder, KEY)).problems == []
    shutil.copytree(folder, folder.parent / "copy")

    async def open_again() -> None:
        journal = open_journal(path, keyring=open_keyring(folder, KEY))
        assert await journal.head(task_id) > 30
        await journal.close()

    asyncio.run(open_again())
    assert check_journal(path, open_keyring(folder, KEY)).problems == []


async def test_a_damaged_row_fails_only_the_submission_that_needs_it(
    folder: Path, path: Path
) -> None:
    journal = open_journal(path, keyring=open_keyring(folder, KEY))
    task_id = journal.new_task_id()
    await journal.create(task_id, created(), key="old", content_hash="h")
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    await journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE tasks SET metadata = x'00'")
    connection.close()
    again = open_journal(path, keyring=open_keyring(folder, KEY))
    submissions = [
        again.create(again.new_task_id(), created(), key=key, content_hash="h")
        for key in ("old", "new", "newer")
    ]
    await asyncio.wait(submissions)
    await again.close()
    assert isinstance(submissions[0].exception(), JournalUnavailableError)
    assert [each.result().is_new for each in submissions[1:]] == [True, True]
