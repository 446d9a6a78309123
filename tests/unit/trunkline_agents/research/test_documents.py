"""Documents are added, replaced, removed and searched."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from harness.journal.postgres_server import blocking_database
from harness.journal.protected import new_key, open_keyring
from harness.pdf import pdf
from trunkline.core.encryption import Cipher, DerivedKey
from trunkline.core.settings import PluginTable, Settings
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline_agents.research.documents.adding import DEPTH_LIMIT, add_documents
from trunkline_agents.research.documents.opening import DocumentsCheck, open_documents
from trunkline_agents.research.documents.passages import Document, Passage
from trunkline_agents.research.documents.postgres_store import PostgresDocumentStore
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.documents.store import DocumentStore

# Opens the documents as a further process.
OpenStore: TypeAlias = Callable[[], DocumentStore]


@contextmanager
def open_stores(kind: str, folder: Path) -> Iterator[OpenStore]:
    if kind == "sqlite":
        yield lambda: SqliteDocumentStore.open(folder / "data" / "documents.db")
        return
    with blocking_database() as url:
        yield lambda: PostgresDocumentStore(url)


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    with open_stores(request.param, tmp_path) as opening:
        yield opening


@pytest.fixture
def store(open_store: OpenStore) -> Iterator[DocumentStore]:
    with open_store() as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_handbook(tmp_path)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DocumentStore]:
    """Return a store with the handbook, shared by tests that only search."""
    parent = tmp_path_factory.mktemp("shelf")
    with open_stores(request.param, parent) as opening, opening() as opened:
        add_documents(opened, [write_handbook(parent)])
        yield opened


def write_handbook(parent: Path) -> Path:
    """Make a folder with documents of each kind, and with files of other kinds."""
    handbook = parent / "handbook"
    (handbook / "hr").mkdir(parents=True)
    (handbook / "hr/leave.md").write_text(
        "# Time off\n\n## Paid leave\n\nEmployees have 28 days of paid leave a year.\n\n"
        "## Sick leave\n\nWhoever is sick calls the office before nine.\n"
    )
    (handbook / "travel.txt").write_text("Trains come before planes. The office books hotels.")
    (handbook / "cache.html").write_text("<title>The cache</title><p>It is write-through.</p>")
    (handbook / "safety.pdf").write_bytes(
        pdf(["Fire exits"], ["The assembly point is the car park."])
    )
    (handbook / "picture.png").write_bytes(b"\x89PNG")
    (handbook / ".hidden.md").write_text("secret")
    return handbook


def names(store: DocumentStore) -> list[str]:
    return [document.name for document in store.list_documents()]


def search(store: DocumentStore, question: str) -> list[tuple[str, str]]:
    return [(hit.name, hit.place) for hit in search_documents(store, question)]


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("how many days of paid leave do employees have", 'section "Paid leave", line 5'),
        ("paid leaves", 'section "Paid leave", line 5'),
        ("what do I do when I am sick", 'section "Sick leave", line 9'),
        ("where is the assembly point?", "page 2"),
        ("WRITE-THROUGH CACHE", ""),
        ("hotel", "line 1"),
        # One of the words has a typing error.
        ("paid leave for emplyees", 'section "Paid leave", line 5'),
    ],
)
def test_a_question_finds_its_passage_and_position(
    shared_store: DocumentStore, question: str, place: str
) -> None:
    assert search(shared_store, question)[0][1] == place


@pytest.mark.parametrize(
    "question",
    [
        *("who wrote Hamlet", "", "???", "of what", "zebra office giraffe okapi", '"', "NEAR("),
        *("text:*", "AND (", "-- '; DROP TABLE documents;", "\0", "a" * 5000),
    ],
)
def test_an_unrelated_question_finds_nothing_and_breaks_nothing(
    shared_store: DocumentStore, question: str
) -> None:
    assert search(shared_store, question) == []
    assert len(shared_store.list_documents()) == 4


def test_a_number_alone_answers_only_a_question_for_it(
    store: DocumentStore, tmp_path: Path
) -> None:
    (tmp_path / "hours.md").write_text("On Fridays, the office closes at 15:30.")
    add_documents(store, [tmp_path / "hours.md"])

    assert search_documents(store, "is 15 a triangular number") == []
    assert search_documents(store, "at 15") != []
    assert search_documents(store, "does the office close at 15:30") != []


def test_adding_again_replaces_changed_and_removes_deleted_documents(
    store: DocumentStore, folder: Path
) -> None:
    add_documents(store, [folder])
    (folder / "travel.txt").write_text("Now planes come first, and bicycles come last.")
    (folder / "cache.html").unlink()
    (folder / "new.md").write_text("# New\n\nHello.")

    second_run = add_documents(store, [folder])

    assert sorted(second_run.added) == ["handbook/new.md", "handbook/travel.txt"]
    assert second_run.removed == ["handbook/cache.html"]
    assert sorted(second_run.unchanged) == ["handbook/hr/leave.md", "handbook/safety.pdf"]
    assert search(store, "trains") == []
    assert search(store, "bicycle") == [("handbook/travel.txt", "line 1")]
    assert search(store, "write-through") == []


def test_an_explicitly_named_file_is_text_whatever_its_suffix(
    store: DocumentStore, folder: Path
) -> None:
    (folder / "NOTES").write_text("The wifi password hangs in the kitchen.")

    assert add_documents(store, [folder / "NOTES"]).added == ["NOTES"]
    assert search(store, "wifi password") == [("NOTES", "line 1")]


def test_an_unreadable_file_is_refused_and_the_rest_is_added(
    store: DocumentStore, folder: Path
) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    (folder / "no\udcffname.md").write_text("# x\n\ny")

    added = add_documents(store, [folder])

    assert len(added.added) == 4
    assert {Path(path).name: problem for path, problem in added.refused.items()} == {
        "broken.pdf": "it is a broken PDF",
        "no\udcffname.md": "its name is not text; rename it",
    }


def test_links_are_not_followed_and_the_depth_is_limited(
    store: DocumentStore, tmp_path: Path
) -> None:
    parent = tmp_path / "top"
    deep = parent.joinpath(*["d"] * (DEPTH_LIMIT + 2))
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text("# deep\n\ntext")
    (parent / "a.md").write_text("# a\n\ntext")
    (tmp_path / "secret.md").write_text("# secret\n\ntext")
    (parent / "link.md").symlink_to(tmp_path / "secret.md")
    (parent / "loop").symlink_to(parent)
    os.mkfifo(parent / "pipe.md")

    assert add_documents(store, [parent]).added == ["top/a.md"]


def test_a_missing_path_is_refused(store: DocumentStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="No such file"):
        add_documents(store, [tmp_path / "nothing"])
    with pytest.raises(InvalidArgumentError, match="neither a file nor a folder"):
        add_documents(store, [Path("/dev/null")])


def test_the_best_passage_comes_first_and_headings_count_more(
    store: DocumentStore, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("# Keepalive\n\nPings are sent every ten seconds.")
    (tmp_path / "b.md").write_text("# Other\n\nThere is a keepalive, too, and much else to read.")
    add_documents(store, [tmp_path / "a.md", tmp_path / "b.md"])

    best, second = search_documents(store, "keepalive")

    assert (best.name, second.name) == ("a.md", "b.md")
    assert best.score > second.score
    assert len(search_documents(store, "keepalive", limit=1)) == 1


def test_concurrent_readers_work_while_documents_are_added(
    open_store: OpenStore, store: DocumentStore, folder: Path
) -> None:
    add_documents(store, [folder])
    hit_counts: list[int] = []
    has_started, is_done = threading.Event(), threading.Event()

    def read() -> None:
        with open_store() as other:
            while not is_done.is_set() or not hit_counts:
                hit_counts.append(len(search_documents(other, "paid leave of employees")))
                has_started.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert has_started.wait(60)
    for number in range(3):
        (folder / "travel.txt").write_text(f"Version {number} of how we travel.")
        assert add_documents(store, [folder / "travel.txt"]).added == ["travel.txt"]
    is_done.set()
    reader.join()

    assert set(hit_counts) == {1}


def test_a_database_of_another_program_is_refused_in_one_line(tmp_path: Path) -> None:
    other_database, damaged = tmp_path / "foreign.db", tmp_path / "damaged.db"
    database = sqlite3.connect(other_database)
    database.execute("CREATE TABLE t (a)")
    database.execute("PRAGMA user_version = 7")
    database.close()
    damaged.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)

    with pytest.raises(ConfigurationError, match="another program"):
        SqliteDocumentStore.open(other_database)
    with pytest.raises(ConfigurationError, match="can't be used"):
        SqliteDocumentStore.open(damaged)
    with pytest.raises(ConfigurationError, match="can't be used"):
        SqliteDocumentStore.open(tmp_path / "foreign.db" / "documents.db")
    assert SqliteDocumentStore.open_existing(tmp_path / "none.db") is None


def test_only_their_owner_can_read_the_documents(tmp_path: Path) -> None:
    path = tmp_path / "data" / "documents.db"
    SqliteDocumentStore.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def cipher_of(folder: Path) -> Cipher:
    key = open_keyring(folder, new_key()).derive_first("documents")
    return DerivedKey.parse(key.encode(), where="test").cipher(name="documents.db")


def test_documents_are_encrypted_and_found(tmp_path: Path, folder: Path) -> None:
    path, cipher = tmp_path / "documents.db", cipher_of(tmp_path)
    with SqliteDocumentStore.open(path) as plain:
        add_documents(plain, [folder / "travel.txt"])
    (folder / "cache.html").write_text("<title>The cache</title><p>It is write-back.</p>")
    with (
        SqliteDocumentStore.open(path, cipher) as first,
        SqliteDocumentStore.open(path, cipher) as second,
    ):
        add_documents(first, [folder])
        assert search(second, "where is the assembly point?") == [("handbook/safety.pdf", "page 2")]
        assert names(second) == names(first)
        second.remove([document.path for document in second.list_documents()[:1]])
        assert "handbook/cache.html" not in names(first)
        assert len(names(first)) == 3
        assert "travel.txt" in names(first)[-1]
        assert search(first, "who books hotels")[0][0].endswith("travel.txt")
    stored = path.read_bytes()
    for text in (b"hotels", b"hotel", b"assembly", b"travel", b"handbook", b"Paid leave"):
        assert text not in stored
    with pytest.raises(ConfigurationError, match="is encrypted; set the encryption key"):
        SqliteDocumentStore.open(path)
    with pytest.raises(ConfigurationError, match="not in the keyring"):
        SqliteDocumentStore.open(path, cipher_of(tmp_path / "other"))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE encrypted SET id = id + 100")
    with pytest.raises(ConfigurationError, match="moved from another place"):
        SqliteDocumentStore.open(path, cipher)


def test_a_file_of_documents_that_others_may_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "documents.db"
    SqliteDocumentStore.open(path).close()
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match=r"other users may write to it; run `chmod"):
        SqliteDocumentStore.open(path)
    path.rename(tmp_path / "other.db")
    path.symlink_to(tmp_path / "other.db")
    with pytest.raises(ConfigurationError, match="it is a symbolic link"):
        SqliteDocumentStore.open_existing(path)


def test_texts_that_a_database_refuses_are_stored(store: DocumentStore) -> None:
    # A PDF may have NULs.
    path = "/" + "d" * 4000
    document = Document(path, "manual.pdf", "A\0 title", "application/pdf", 1, 1)
    passages = [Passage("The torque\0 is C-1041 and 3.2.", ("Part\0", "One"), page=3)]
    store.put(document, passages)
    for question in ("torque", "C-1041", "version 3.2 torque"):
        (hit,) = search_documents(store, question)
        assert ("torque" in hit.text, hit.page) == (True, 3)
    assert search_documents(store, "1042") == []
    store.put(document, passages)
    assert [each.path for each in store.list_documents()] == [path]
    store.remove([path])
    assert store.count_documents() == 0


def test_rare_words_and_titles_come_first(store: DocumentStore, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"note{number}.md").write_text(f"# Note {number}\n\nThe pump of the plant.\n")
    (tmp_path / "valve.md").write_text("# Valve\n\nThe pump of the plant has a valve.\n")
    (tmp_path / "zz.md").write_text("# Others\n\nThe pump of the plant has a valve, too.\n")
    add_documents(store, [tmp_path])
    hits = search_documents(store, "pump valve")
    assert [Path(hit.path).name for hit in hits][:2] == ["valve.md", "zz.md"]


def test_the_mesh_has_documents_once_the_database_has_some(folder: Path, tmp_path: Path) -> None:
    with blocking_database() as url:
        table = {"research": PluginTable({"documents_store": url})}
        settings = Settings(data_dir=tmp_path / "none", store=url, plugins=table)
        assert not DocumentsCheck().has_documents(settings)
        with open_documents(settings) as store:
            add_documents(store, [folder])
        assert DocumentsCheck().has_documents(settings)
        # Agents without a URL of it can't read it.
        assert not DocumentsCheck().has_documents(replace(settings, plugins={}))
    # A database that is away is no failure.
    assert not DocumentsCheck().has_documents(settings)
