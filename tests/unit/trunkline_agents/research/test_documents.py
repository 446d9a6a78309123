"""Documents are added, replaced, removed and searched."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.pdf import pdf
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline_agents.research.documents.adding import DEPTH_LIMIT, add_documents
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.store import DocumentStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DocumentStore]:
    with DocumentStore.open(tmp_path / "data" / "documents.db") as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_handbook(tmp_path)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentStore]:
    """The handbook, added once for those who only search."""
    top = tmp_path_factory.mktemp("shelf")
    with DocumentStore.open(top / "documents.db") as one:
        add_documents(one, [write_handbook(top)])
        yield one


def write_handbook(top: Path) -> Path:
    """A folder with documents of each kind, and with what is none."""
    handbook = top / "handbook"
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


def found(store: DocumentStore, question: str) -> list[tuple[str, str]]:
    return [(one.name, one.place) for one in search_documents(store, question)]


def test_a_folder_is_added_with_all_below_under_names_that_begin_with_its_own(
    store: DocumentStore, folder: Path
) -> None:
    added = add_documents(store, [folder])

    expected = ["cache.html", "hr/leave.md", "safety.pdf", "travel.txt"]
    assert sorted(added.added) == [f"handbook/{name}" for name in expected] == names(store)
    assert (added.unchanged, added.removed, added.refused) == ([], [], {})


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("how many days of paid leave do employees have", 'section "Paid leave", line 5'),
        ("paid leaves", 'section "Paid leave", line 5'),
        ("what do I do when I am sick", 'section "Sick leave", line 9'),
        ("where is the assembly point?", "page 2"),
        ("WRITE-THROUGH CACHE", ""),
        ("hotel", "line 1"),
    ],
)
def test_a_question_finds_its_passage_and_where_it_stands(
    shelf: DocumentStore, question: str, place: str
) -> None:
    assert found(shelf, question)[0][1] == place


@pytest.mark.parametrize(
    "question",
    [
        *("who wrote Hamlet", "", "???", "of what", "zebra office giraffe okapi", '"', "NEAR("),
        *("text:*", "AND (", "-- '; DROP TABLE documents;", "\0", "a" * 5000),
    ],
)
def test_what_is_about_nothing_in_the_documents_finds_nothing_and_breaks_nothing(
    shelf: DocumentStore, question: str
) -> None:
    assert found(shelf, question) == []
    assert len(shelf.list_documents()) == 4


def test_adding_again_replaces_what_changed_and_removes_what_is_gone(
    store: DocumentStore, folder: Path
) -> None:
    add_documents(store, [folder])
    (folder / "travel.txt").write_text("Now planes come first, and nobody takes a bicycle.")
    (folder / "cache.html").unlink()
    (folder / "new.md").write_text("# New\n\nHello.")

    again = add_documents(store, [folder])

    assert sorted(again.added) == ["handbook/new.md", "handbook/travel.txt"]
    assert again.removed == ["handbook/cache.html"]
    assert sorted(again.unchanged) == ["handbook/hr/leave.md", "handbook/safety.pdf"]
    assert found(store, "trains") == []
    assert found(store, "bicycle") == [("handbook/travel.txt", "line 1")]
    assert found(store, "write-through") == []


def test_a_named_file_is_text_whatever_it_is_called(store: DocumentStore, folder: Path) -> None:
    (folder / "NOTES").write_text("The wifi password hangs in the kitchen.")

    assert add_documents(store, [folder / "NOTES"]).added == ["NOTES"]
    assert found(store, "wifi password") == [("NOTES", "line 1")]


def test_what_cannot_be_read_is_refused_and_the_rest_is_added(
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


def test_links_are_not_followed_and_depth_has_an_end(store: DocumentStore, tmp_path: Path) -> None:
    top = tmp_path / "top"
    deep = top.joinpath(*["d"] * (DEPTH_LIMIT + 2))
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text("# deep\n\ntext")
    (top / "a.md").write_text("# a\n\ntext")
    (tmp_path / "secret.md").write_text("# secret\n\ntext")
    (top / "link.md").symlink_to(tmp_path / "secret.md")
    (top / "loop").symlink_to(top)
    os.mkfifo(top / "pipe.md")

    assert add_documents(store, [top]).added == ["top/a.md"]


def test_a_path_to_nothing_is_refused(store: DocumentStore, tmp_path: Path) -> None:
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


def test_others_read_while_documents_are_added(store: DocumentStore, folder: Path) -> None:
    add_documents(store, [folder])
    seen: list[int] = []
    has_begun, is_done = threading.Event(), threading.Event()

    def read() -> None:
        with DocumentStore.open(store.path) as other:
            while not is_done.is_set() or not seen:
                seen.append(len(search_documents(other, "paid leave of employees")))
                has_begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert has_begun.wait(60)
    for number in range(3):
        (folder / "travel.txt").write_text(f"Version {number} of how we travel.")
        assert add_documents(store, [folder / "travel.txt"]).added == ["travel.txt"]
    is_done.set()
    reader.join()

    assert set(seen) == {1}


def test_a_file_of_others_is_refused_in_one_line(tmp_path: Path) -> None:
    foreign, damaged = tmp_path / "foreign.db", tmp_path / "damaged.db"
    database = sqlite3.connect(foreign)
    database.execute("CREATE TABLE t (a)")
    database.execute("PRAGMA user_version = 7")
    database.close()
    damaged.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)

    with pytest.raises(ConfigurationError, match="another program"):
        DocumentStore.open(foreign)
    with pytest.raises(ConfigurationError, match="can't be used"):
        DocumentStore.open(damaged)
    with pytest.raises(ConfigurationError, match="can't be used"):
        DocumentStore.open(tmp_path / "foreign.db" / "documents.db")
    assert DocumentStore.open_existing(tmp_path / "none.db") is None


def test_only_their_owner_can_read_the_documents(store: DocumentStore) -> None:
    assert store.path.stat().st_mode & 0o777 == 0o600
