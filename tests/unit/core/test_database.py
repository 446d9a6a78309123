"""What every store gets from the package that opens SQLite files."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from trunkline.core.database import Database, FileLock, Schema, copy_file, is_sound, open_read_only
from trunkline.errors import JournalUnavailableError

FIRST = Schema("CREATE TABLE IF NOT EXISTS notes (text TEXT NOT NULL);\n")
SECOND = Schema(
    "CREATE TABLE notes (text TEXT NOT NULL, author TEXT NOT NULL);\n",
    version=2,
    migrations={1: "ALTER TABLE notes ADD COLUMN author TEXT NOT NULL DEFAULT 'unknown';\n"},
)


def add_note(path: Path, schema: Schema = FIRST) -> None:
    with Database(path, schema) as database, database.write() as connection:
        connection.execute("INSERT INTO notes (text) VALUES ('hello')")


def read_notes(path: Path) -> list[tuple[str, ...]]:
    with open_read_only(path) as connection:
        return connection.execute("SELECT * FROM notes").fetchall()


def test_a_new_file_has_the_tables_and_only_its_user_may_read_it(tmp_path: Path) -> None:
    add_note(tmp_path / "notes.db", Schema(FIRST.tables, version=2))
    assert read_notes(tmp_path / "notes.db") == [("hello",)]
    assert (tmp_path / "notes.db").stat().st_mode & 0o777 == 0o600


def test_a_file_of_an_earlier_version_is_migrated_with_its_content(tmp_path: Path) -> None:
    add_note(tmp_path / "notes.db")
    Database(tmp_path / "notes.db", SECOND).close()
    assert read_notes(tmp_path / "notes.db") == [("hello", "unknown")]


def test_a_file_from_before_versions_were_stored_keeps_its_content(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "notes.db", isolation_level=None)) as connection:
        connection.execute(FIRST.tables)
        connection.execute("INSERT INTO notes VALUES ('old')")
    add_note(tmp_path / "notes.db")
    assert read_notes(tmp_path / "notes.db") == [("old",), ("hello",)]


def test_a_file_of_a_later_version_or_another_program_is_refused(tmp_path: Path) -> None:
    Database(tmp_path / "later.db", SECOND).close()
    with pytest.raises(JournalUnavailableError, match="later version"):
        Database(tmp_path / "later.db", FIRST)
    Database(tmp_path / "other.db", Schema(FIRST.tables, application_id=7)).close()
    with pytest.raises(JournalUnavailableError, match="another program"):
        Database(tmp_path / "other.db", Schema(FIRST.tables, application_id=8))


def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    add_note(tmp_path / "notes.db")
    broken = Schema("", version=2, migrations={1: "DROP TABLE notes;\nDROP TABLE missing;\n"})
    with pytest.raises(JournalUnavailableError, match="missing"):
        Database(tmp_path / "notes.db", broken)
    assert read_notes(tmp_path / "notes.db") == [("hello",)]


def test_a_write_that_raises_is_undone(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", FIRST) as database:
        with pytest.raises(JournalUnavailableError), database.write() as connection:
            connection.executemany("INSERT INTO notes VALUES (?)", [("lost",), (None,)])
        with database.write() as connection:
            connection.execute("INSERT INTO notes VALUES ('kept')")
    assert read_notes(tmp_path / "notes.db") == [("kept",)]


def test_links_are_refused(tmp_path: Path) -> None:
    add_note(tmp_path / "notes.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "notes.db")
    with pytest.raises(JournalUnavailableError, match="symbolic link"):
        Database(tmp_path / "link.db", FIRST)


def test_a_locked_file_has_one_user_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    first = Database(path, FIRST, lock_wait_s=0)
    with pytest.raises(JournalUnavailableError, match="has it open"):
        Database(path, FIRST, lock_wait_s=0.05)
    first.close()
    Database(path, FIRST, lock_wait_s=0).close()
    FileLock.acquire(path).close()


async def test_calls_of_an_event_loop_run_in_their_order(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", FIRST) as database:

        def write(text: str) -> int | None:
            with database.write() as connection:
                return connection.execute("INSERT INTO notes VALUES (?)", (text,)).lastrowid

        assert [await database.run(write, text) for text in ("a", "b")] == [1, 2]


def test_a_copy_has_what_was_committed_while_another_connection_writes(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    add_note(path)
    with Database(path, FIRST) as database, database.write() as connection:
        connection.execute("INSERT INTO notes VALUES ('not committed')")
        with copy_file(path, tmp_path / "backup" / "notes.db") as copy:
            copy.execute("UPDATE notes SET text = text || ' again'")
    assert read_notes(tmp_path / "backup" / "notes.db") == [("hello again",)]
    assert is_sound(tmp_path / "backup" / "notes.db")


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    assert not is_sound(path)
    with pytest.raises(JournalUnavailableError, match="not a SQLite database"):
        Database(path, FIRST)


def test_processes_that_open_a_new_file_at_once_all_have_it(tmp_path: Path) -> None:
    openings = 4
    with ThreadPoolExecutor(openings) as pool:
        for number in range(30):
            path, ready = tmp_path / f"{number}.db", Barrier(openings)

            def open_file(path: Path, ready: Barrier) -> None:
                ready.wait()
                Database(path, FIRST).close()

            for opened in [pool.submit(open_file, path, ready) for _ in range(openings)]:
                opened.result()
            assert read_notes(path) == []
