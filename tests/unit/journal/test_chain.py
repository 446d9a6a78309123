"""The hash chains of a journal show every change of its events, and only these."""

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.journal.builders import append
from harness.journal.protected import new_key, open_keyring, write_journal, write_task
from trunkline.core.encryption import Keyring, copy_keyring, keyring_path
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal, Retention
from trunkline.journal.sqlite import SqliteStore
from trunkline.journal.sqlite.admin import back_up_file, prune_journal
from trunkline.journal.sqlite.chain import COMMITS, genesis
from trunkline.journal.sqlite.check import check_journal

CONTENT = {"commits": "payload", "settled": "payload", "folds": "snapshot"}


def sql(template: str, *names: object) -> str:
    """Return a statement with names and numbers of this test in place of each question mark."""
    first, *rest = template.split("?")
    return "".join([first, *(f"{name}{text}" for name, text in zip(names, rest, strict=True))])


def run_raw(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a data directory whose journal has rows in all tables, and gaps."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "journals").mkdir()
    (folder / "key").write_text(new_key() if request.param == "encrypted" else "")
    asyncio.run(write_journal(folder / "journals" / "mesh.db", keyring_of(folder)))
    return folder


def keyring_of(folder: Path) -> Keyring:
    return open_keyring(folder, (folder / "key").read_text())


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "data")
    return tmp_path / "data" / "journals" / "mesh.db"


def problems(path: Path) -> list[str]:
    return check_journal(path, keyring_of(path.parent.parent)).problems


def test_an_unchanged_journal_has_no_problems(path: Path) -> None:
    report = check_journal(path, keyring_of(path.parent.parent))
    assert report.problems == []
    assert report.chains.signed_ns > 0
    assert report.chains.unsigned_count == 0
    counts = {table: query(path, sql("SELECT count(*) FROM ?", table))[0][0] for table in CONTENT}
    assert all(counts.values())
    assert query(path, "SELECT count(*) FROM chain_gaps")[0][0] > 0


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_of_a_row_is_found_and_named(
    written: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("copy") / "data"
    shutil.copytree(written, folder)
    path = folder / "journals" / "mesh.db"
    table = data.draw(st.sampled_from(sorted(CONTENT)))
    column = data.draw(st.sampled_from([CONTENT[table], "hash"]))
    number = "id" if table == "commits" else "number"
    row, content = data.draw(
        st.sampled_from(query(path, sql("SELECT ?, ? FROM ?", number, column, table)))
    )
    changed = bytearray(content)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    connection = sqlite3.connect(path, isolation_level=None)
    statement = sql("UPDATE ? SET ? = :content WHERE ? = :row", table, column, number)
    connection.execute(statement, {"content": changed, "row": row})
    connection.close()
    assert any(f"row {row} of {table} was changed" in problem for problem in problems(path))
    shutil.rmtree(folder.parent)


@pytest.mark.parametrize("table", sorted(CONTENT))
@pytest.mark.parametrize("which", ["min", "max"])
def test_a_removed_row_is_found_and_named(path: Path, table: str, which: str) -> None:
    number = "id" if table == "commits" else "number"
    ((row,),) = query(path, sql("SELECT ?(?) FROM ?", which, number, table))
    run_raw(path, sql("DELETE FROM ? WHERE ? = ?", table, number, row))
    assert any(f"row {row} of {table} was removed" in problem for problem in problems(path))


def test_a_task_that_is_removed_everywhere_is_noticed(path: Path) -> None:
    ((task_id,),) = query(path, "SELECT task_id FROM settled LIMIT 1")
    run_raw(
        path,
        *(
            sql("DELETE FROM ? WHERE task_id = '?'", table, task_id)
            for table in ("settled", "tasks", "webhooks")
        ),
    )
    assert any("of settled was removed" in problem for problem in problems(path))


def test_swapped_commits_are_named(path: Path) -> None:
    first, second, *_ = [row for (row,) in query(path, "SELECT id FROM commits ORDER BY id")]
    run_raw(
        path,
        sql("UPDATE commits SET id = -1 WHERE id = ?", first),
        sql("UPDATE commits SET id = ? WHERE id = ?", first, second),
        sql("UPDATE commits SET id = ? WHERE id = -1", second),
    )
    assert any(f"row {first} of commits was changed" in problem for problem in problems(path))


def test_recomputed_hashes_do_not_fit_the_signed_head(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    ((journal_id,),) = connection.execute("SELECT journal_id FROM meta")
    rows = connection.execute("SELECT id, payload, hash FROM commits ORDER BY id").fetchall()
    (gap,) = connection.execute("SELECT last, hash FROM chain_gaps WHERE chain = 'commits'")
    link = genesis(journal_id, COMMITS)._replace(number=gap[0], hash=gap[1])
    for commit_id, payload, _ in rows:
        link = link.follow(payload + b"\x00")
        connection.execute(
            "UPDATE commits SET payload = ?, hash = ? WHERE id = ?",
            (payload + b"\x00", link.hash, commit_id),
        )
    connection.close()
    assert any("of commits does not fit the signed head" in problem for problem in problems(path))
    with pytest.raises(JournalUnavailableError, match=r"damaged|altered"):
        SqliteStore.open(path, keyring=keyring_of(path.parent.parent))


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM chain_head", "the head of its hash chains was removed"),
        ("UPDATE chain_head SET content = 'x'", "the head of its hash chains was changed"),
        ("UPDATE chain_head SET signature = x''", "signature of its hash chains is missing"),
        (
            "UPDATE chain_head SET content = replace(content, 'true', 'false')",
            "the signature of its hash chains is not of this keyring",
        ),
        ("UPDATE chain_gaps SET signature = x'00'", "without a valid signature"),
        ("UPDATE chain_gaps SET last = last + 1", "without a valid signature"),
        ("DELETE FROM chain_gaps", "removed"),
    ],
)
def test_changes_of_the_chains_themselves_are_found(
    path: Path, statement: str, problem: str
) -> None:
    run_raw(path, statement)
    assert any(problem in text for text in problems(path))


def test_rows_that_are_added_after_the_close_are_found(path: Path) -> None:
    ((last, digest),) = query(path, "SELECT id, hash FROM commits ORDER BY id DESC LIMIT 1")
    link = genesis("", COMMITS)._replace(number=last, hash=digest).follow(b"")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("INSERT INTO commits VALUES (?, ?, ?)", (link.number, b"", link.hash))
    connection.close()
    assert any("added after the close" in problem for problem in problems(path))


def test_a_changed_journal_is_not_opened(path: Path) -> None:
    run_raw(path, "UPDATE commits SET hash = x'00' WHERE id = (SELECT max(id) FROM commits)")
    with pytest.raises(JournalUnavailableError, match="of commits was changed"):
        SqliteStore.open(path, keyring=keyring_of(path.parent.parent))


def test_a_head_that_was_accepted_without_a_signature_stays_known(path: Path) -> None:
    keyring = keyring_of(path.parent.parent)
    run_raw(path, "UPDATE chain_head SET signature = x'00'")
    for _ in range(2):
        SqliteStore.open(path, keyring=keyring).close()
    assert problems(path) == ["its head had no valid signature when a host opened it"]


def test_retention_leaves_the_chains_valid(path: Path) -> None:
    keyring = keyring_of(path.parent.parent)
    result = prune_journal(path, Retention(compact_after_s=0, retain_s=0), keyring)
    assert result.deleted == 2
    report = check_journal(path, keyring)
    assert (report.problems, report.task_count) == ([], 1)
    assert query(path, "SELECT count(*) FROM folds") == [(0,)]


async def test_commits_are_signed_at_the_next_renewal(tmp_path: Path) -> None:
    keyring = open_keyring(tmp_path)
    path = tmp_path / "journals" / "mesh.db"
    journal = Journal.open(path, keyring=keyring)
    task_id = await write_task(journal, is_ended=False)
    report = check_journal(path, keyring)
    assert (report.problems, report.chains.unsigned_count) == ([], 4 - 1)
    journal.renew_lease(10.0)
    assert check_journal(path, keyring).chains.unsigned_count == 0
    # A host that dies here leaves commits without a signature, which is no problem.
    await journal.append(task_id, journal.epoch, [build_draft([append("a", "z")])])
    back_up_file(path, tmp_path / "copy.db")
    report = check_journal(tmp_path / "copy.db", keyring)
    assert (report.problems, report.chains.unsigned_count) == ([], 1)
    SqliteStore.open(tmp_path / "copy.db", keyring=keyring).close()
    assert check_journal(tmp_path / "copy.db", keyring).problems == []
    journal.close()


async def test_a_step_that_fails_leaves_the_chain_where_it_was(tmp_path: Path) -> None:
    keyring = open_keyring(tmp_path)
    path = tmp_path / "mesh.db"
    journal = Journal.open(path, keyring=keyring)
    await write_task(journal, is_ended=True)
    store = journal._store
    run_raw(
        path, "CREATE TRIGGER fail BEFORE INSERT ON settled BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(JournalUnavailableError):
        store.settle(budget_bytes=1 << 20)
    run_raw(path, "DROP TRIGGER fail")
    while store.has_backlog():
        store.settle(budget_bytes=1 << 20)
    journal.close()
    assert check_journal(path, keyring).problems == []
    assert query(path, "SELECT number FROM settled") == [(1,)]


def remove_chains(path: Path) -> None:
    """Give a journal the format of the version before hash chains."""
    run_raw(
        path,
        "DROP TABLE chain_head",
        "DROP TABLE chain_gaps",
        *(f"ALTER TABLE {table} DROP COLUMN hash" for table in CONTENT),
        *(f"ALTER TABLE {table} DROP COLUMN number" for table in ("settled", "folds")),
        "ALTER TABLE meta DROP COLUMN data_key",
        "UPDATE meta SET schema_version = 4",
    )


def test_a_journal_of_the_earlier_version_gets_chains_when_it_is_opened(path: Path) -> None:
    remove_chains(path)
    file = keyring_path(path.parent.parent)
    table = json.loads(file.read_bytes())
    # No journal had chains before.
    del table["chained_journals"]
    file.write_text(json.dumps(table))
    keyring = keyring_of(path.parent.parent)
    report = check_journal(path, keyring)
    assert (report.problems, report.is_unchained, report.task_count) == ([], True, 3)
    SqliteStore.open(path, keyring=keyring).close()
    report = check_journal(path, keyring)
    assert (report.problems, report.is_unchained) == ([], False)
    assert report.chains.signed_ns > 0
    ((content,),) = query(path, "SELECT content FROM chain_head")
    assert json.loads(str(content))["closed"] is True


@pytest.mark.parametrize("change", ["", "list"], ids=["the journal", "also the list"])
def test_a_journal_that_lost_its_chains_is_reported_and_not_opened(path: Path, change: str) -> None:
    remove_chains(path)
    file = keyring_path(path.parent.parent)
    if change:
        table = json.loads(file.read_bytes())
        table["chained_journals"]["names"] = ["other.db"]
        file.write_text(json.dumps(table))
    keyring = keyring_of(path.parent.parent)
    (problem,) = check_journal(path, keyring).problems
    assert "without hash chains, but had them before" in problem
    with pytest.raises(JournalUnavailableError, match="had them before"):
        SqliteStore.open(path, keyring=keyring)
    assert query(path, "SELECT schema_version FROM meta") == [(4,)]
    # A copy of the keyring knows it, too.
    copy = path.parent / "copy"
    copy_keyring(path.parent.parent, copy)
    shutil.copy(path.parent.parent / "key", copy)
    assert check_journal(path, keyring_of(copy)).problems == [problem]
