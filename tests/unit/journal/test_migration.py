"""Journals of earlier versions are converted when they are opened, and lose nothing.

The files in `earlier_versions` are dumps of journals that version 5 wrote. Each has two compacted
tasks, with and without events, two ended tasks, whose events are in `commits` and in `settled`, and
three unfinished tasks.
"""

import base64
import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from harness.journal.opening import open_journal
from harness.journal.protected import SECRET_TEXT, SECRET_TOKEN, open_keyring
from trunkline.core.encryption import Keyring, keyring_path
from trunkline.core.json_values import read_member
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.journal import Journal, Retention
from trunkline.journal.sqlite import list_unfinished_agents
from trunkline.journal.sqlite.admin import prune_journal
from trunkline.journal.sqlite.check import check_journal
from trunkline.tasks.outbox.webhook import from_row
from trunkline.v1 import task_pb2

FILES = Path(__file__).parent / "earlier_versions"
KEY = base64.b64encode(b"k" * 32).decode()
COMPLETED = task_pb2.TASK_STATE_COMPLETED


def write_file(folder: Path, kind: str) -> Path:
    """Write a data directory with the journal of an earlier version; return the journal's path."""
    path = folder / "journals" / "mesh.db"
    path.parent.mkdir(parents=True, mode=0o700)
    path.touch(0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FILES / f"{kind}.sql").read_text())
        connection.execute("PRAGMA journal_mode = WAL")
    if kind == "encrypted":
        keyring_path(folder).parent.mkdir(mode=0o700)
        shutil.copy(FILES / "keyring.json", keyring_path(folder))
        keyring_path(folder).chmod(0o600)
    return path


def run_raw(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def dump(path: Path) -> Sequence[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


async def check_content(journal: Journal) -> None:
    """Check that a converted journal has all that version 5 wrote."""
    listed = await journal._store.list_unfinished()
    unfinished, waiting, submitted = [row.task_id for row in listed]
    key = (await journal._store.find_keys(["key-1"], now_ns=0)).get("key-1")
    assert key is not None
    assert (key.task_id, key.content_hash) == (submitted, "h")
    states = [(await journal.row(task_id)).state for task_id in (unfinished, waiting)]
    assert states == [task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_INPUT_REQUIRED]
    assert [await journal.head(task_id) for task_id in (unfinished, waiting)] == [6, 16]
    webhooks = await journal.webhooks.find()
    assert {from_row(row).config.token for row in webhooks} == {SECRET_TOKEN}
    texts = {}
    for task_id in {row.task_id for row in webhooks}:
        row = await journal.row(task_id)
        snapshot = await journal.snapshot(task_id)
        assert snapshot.sequence == row.head
        assert read_member(snapshot.task.metadata, "note") == SECRET_TEXT
        (artifact,) = snapshot.task.artifacts
        texts[task_id] = artifact.parts[0].text
        sequence = row.first_available - 1
        for sealed in await journal.read(task_id, sequence, limit_bytes=1 << 30):
            header = parse_header(sealed)
            assert (header.task_id, header.first_sequence) == (task_id, sequence + 1)
            sequence += header.count
        assert sequence == row.head
    assert texts.pop(unfinished) == f"{SECRET_TEXT}morea0a1a2"
    assert texts.pop(waiting) == f"{SECRET_TEXT}more" + "".join(f"b{n}xy" for n in range(3))
    assert list(texts.values()) == [f"{SECRET_TEXT}more"] * 4
    # Two of the four ended tasks were compacted.
    first_sequences = [(await journal.row(task_id)).first_available for task_id in texts]
    assert sorted(first_sequences) == [1, 1, 5, 5]
    assert {(await journal.row(task_id)).state for task_id in texts} == {COMPLETED}
    children = [
        (child.task_id, child.user_statement) for child in await journal.list_orphaned_children()
    ]
    assert children == [("child-1", "signed"), ("child-2", "")]
    assert await journal.aliases.find("acme", "alias-1") == unfinished


def open_kind(folder: Path, kind: str) -> Keyring:
    return open_keyring(folder, "" if kind == "plain" else KEY)


def to_version_4(path: Path) -> None:
    """Give a journal the format of version 4, which had no hash chains and no encryption."""
    run_raw(
        path,
        "DROP TABLE chain_head",
        "DROP TABLE chain_gaps",
        "DROP TABLE stray_users",
        *(f"ALTER TABLE {table} DROP COLUMN hash" for table in ("commits", "settled", "folds")),
        *(f"ALTER TABLE {table} DROP COLUMN number" for table in ("settled", "folds")),
        "ALTER TABLE meta DROP COLUMN data_key",
        "UPDATE meta SET schema_version = 4",
    )


@pytest.mark.parametrize("kind", ["plain", "encrypted", "plain, and then a key"])
async def test_a_journal_of_version_5_is_converted_completely(tmp_path: Path, kind: str) -> None:
    path = write_file(tmp_path, kind.split(",")[0])
    keyring = open_kind(tmp_path, kind)
    assert list_unfinished_agents(path) == {"echo"}
    before = check_journal(path, keyring)
    assert (before.problems, before.task_count) == ([], 7)

    journal = open_journal(path, keyring=keyring)
    for _ in range(2):
        await check_content(journal)
        await journal.close()
        journal = open_journal(path, keyring=keyring)
    await journal.close()
    after = check_journal(path, keyring)
    assert (after.problems, after.task_count) == ([], 7)
    assert after.event_count == before.event_count
    assert (after.plain_count == 0) is (kind != "plain")
    stored = b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())
    assert (SECRET_TEXT.encode() in stored) is (kind == "plain")


async def test_a_journal_of_version_4_is_converted_completely(tmp_path: Path) -> None:
    path = write_file(tmp_path, "plain")
    to_version_4(path)
    assert check_journal(path).problems == []
    journal = open_journal(path)
    assert len(journal.list_unfinished()) == 3
    assert [child.user_statement for child in await journal.list_orphaned_children()] == ["", ""]
    await journal.close()
    assert check_journal(path).problems == []


async def test_retention_continues_in_a_converted_journal(tmp_path: Path) -> None:
    path = write_file(tmp_path, "encrypted")
    keyring = open_kind(tmp_path, "encrypted")
    result = await prune_journal(path, Retention(compact_after_s=0, retain_s=0), keyring)
    assert (result.compacted, result.deleted, result.damaged) == (2, 4, 0)
    assert check_journal(path, keyring).problems == []


async def test_a_conversion_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = write_file(tmp_path, "plain")
    run_raw(path, "INSERT INTO commits (id, payload) VALUES (999, x'0000000412341234')")
    before = dump(path)
    with pytest.raises(JournalUnavailableError, match="damaged"):
        open_journal(path)
    assert dump(path) == before
    assert check_journal(path).problems != []
    run_raw(path, "DELETE FROM commits WHERE id = 999")
    async with open_journal(path) as journal:
        assert len(journal.list_unfinished()) == 3


async def test_an_ended_task_that_was_damaged_before_stays_and_is_reported(tmp_path: Path) -> None:
    path = write_file(tmp_path, "encrypted")
    keyring = open_kind(tmp_path, "encrypted")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        ((task_id,),) = connection.execute(
            "SELECT task_id FROM settled JOIN tasks USING (task_id) WHERE stage = 1"
        )
        connection.execute(
            "UPDATE settled SET payload = CAST(payload || x'00' AS BLOB) WHERE task_id = ?",
            (task_id,),
        )
    journal = open_journal(path, keyring=keyring)
    with pytest.raises(JournalUnavailableError, match="altered"):
        await journal.read(task_id, 0)
    assert len(journal.list_unfinished()) == 3
    await journal.close()
    (problem,) = check_journal(path, keyring).problems
    assert problem.startswith(f"task {task_id}: its content was altered")


def test_a_journal_that_is_encrypted_is_not_converted_without_its_keyring(tmp_path: Path) -> None:
    path = write_file(tmp_path, "encrypted")
    before = dump(path)
    with pytest.raises(ConfigurationError, match="restore the keyring"):
        open_journal(path)
    assert dump(path) == before


async def test_an_encrypted_journal_that_another_program_replaced_by_an_earlier_version_is_refused(
    tmp_path: Path,
) -> None:
    path = write_file(tmp_path, "encrypted")
    keyring = open_kind(tmp_path, "encrypted")
    await open_journal(path, keyring=keyring).close()
    shutil.rmtree(path.parent)
    write_file(tmp_path / "forged", "plain")
    shutil.move(tmp_path / "forged" / "journals", path.parent)
    before = dump(path)
    for reopened in (keyring, open_kind(tmp_path, "encrypted")):
        with pytest.raises(JournalUnavailableError, match="another program replaced it"):
            open_journal(path, keyring=reopened)
        assert any("not encrypted" in text for text in check_journal(path, reopened).problems)
    assert dump(path) == before


def test_the_keyring_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    write_file(tmp_path, "encrypted")
    keyring = open_kind(tmp_path, "encrypted")
    assert keyring.is_encrypting
    assert not keyring.has_encrypted_journal("mesh.db")
    keyring.add_encrypted_journal("mesh.db")
    table = json.loads(keyring_path(tmp_path).read_bytes())
    assert sorted(table) == ["data_keys", "encrypted_journals", "version"]
    assert open_kind(tmp_path, "encrypted").has_encrypted_journal("mesh.db")
