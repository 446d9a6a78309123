"""Which journals of a data directory a host opens: its own family, as far as nobody has it."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from harness.journal.builders import created
from trunkline.agents.journals import JournalFolder, OpenJournal
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite.schema import mark_abandoned
from trunkline.settings import Settings

AGENTS = {"math", "echo"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def journals(tmp_path: Path) -> JournalFolder:
    return JournalFolder(Settings(data_dir=tmp_path))


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def hold(held: ExitStack, found: OpenJournal) -> OpenJournal:
    held.callback(found.journal.close)
    return found


def make(path: Path) -> str:
    """Make a journal that nobody has, with a task in it."""

    async def create() -> str:
        journal = Journal.open(path)
        await journal.create(journal.new_task_id(), created())
        journal.close()
        return journal.id

    return asyncio.run(create())


def lose(path: Path) -> None:
    """Let a journal look as if its host had died."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        mark_abandoned(file)


def test_the_first_journal_of_a_host_is_named_after_it(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    own = hold(held, journals.open_own("math", AGENTS))
    assert own.path == folder / "math.db"
    assert own.checkpoint_path == folder / "math.db.checkpoints"


def test_a_host_comes_back_to_the_journal_that_it_had(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    known = make(folder / "math.db")
    assert hold(held, journals.open_own("math", AGENTS)).journal.id == known


def test_a_host_whose_journal_somebody_has_takes_the_next(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    first = hold(held, journals.open_own("math", AGENTS))
    second = hold(held, journals.open_own("math", AGENTS))
    assert second.path == folder / "math.2.db"
    assert second.journal.id != first.journal.id


def test_all_free_journals_of_the_family_and_no_others_are_opened_beside(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    names = ("math.db", "math.2.db", "math.10.db", "math.1.db", "math-2.db", "mathematics.db")
    for name in names:
        make(folder / name)
    (folder / "math.db.checkpoints").touch()
    hold(held, OpenJournal(Journal.open(folder / "math.2.db"), folder / "math.2.db"))
    own = hold(held, journals.open_own("math", AGENTS))
    found = [hold(held, one).path.name for one in journals.open_free("math", {"math"})]
    assert own.path.name == "math.db"
    assert found == ["math.10.db"]


def test_a_journal_that_holds_tasks_of_others_is_no_host_s_own(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    make(folder / "math.db")
    assert hold(held, journals.open_own("math", {"math"})).path.name == "math.2.db"
    # It is served beside that: nobody else opens what was given back.
    assert [hold(held, one).path.name for one in journals.open_free("math", {"math"})] == [
        "math.db"
    ]


def test_what_another_family_gave_back_is_opened_if_it_waits_for_these_agents_alone(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    for name in ("currency.db", "research.db", "math.db"):
        make(folder / name)
    Journal.open(folder / "empty.db").close()
    hold(held, OpenJournal(Journal.open(folder / "research.db"), folder / "research.db"))
    hold(held, journals.open_own("math", AGENTS))
    assert journals.open_free("math", {"math"}) == []
    (other,) = journals.open_free("math", AGENTS)
    assert hold(held, other).path.name == "currency.db"


def test_what_a_host_lost_that_ran_others_is_left_to_it(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    make(folder / "math.db")
    lose(folder / "math.db")
    assert hold(held, journals.open_own("math", {"math"})).path.name == "math.2.db"
    assert journals.open_free("math", {"math"}) == []
    assert [hold(held, one).path.name for one in journals.open_free("math", AGENTS)] == ["math.db"]


def test_journals_without_tasks_are_removed_unless_somebody_has_them(
    journals: JournalFolder, folder: Path, held: ExitStack
) -> None:
    own = hold(held, journals.open_own("math", AGENTS))
    Journal.open(folder / "math.2.db").close()
    make(folder / "math.3.db")
    for name in ("math.2.db.checkpoints", "math.3.db.checkpoints"):
        (folder / name).touch()
    found = [hold(held, one).path.name for one in journals.open_free("math", AGENTS)]
    assert found == ["math.3.db"]
    assert list(folder.glob("math.2.db*")) == []
    assert (folder / "math.3.db.checkpoints").exists()
    assert own.path.exists()


def test_the_journal_of_a_host_that_died_before_it_had_a_task_is_removed(
    journals: JournalFolder, folder: Path
) -> None:
    Journal.open(folder / "math.db").close()
    lose(folder / "math.db")
    (orphan,) = journals.find_orphans()
    assert journals.take_over(orphan) is None
    assert list(folder.iterdir()) == []


def test_a_damaged_journal_is_left_out_and_said_so(
    journals: JournalFolder,
    folder: Path,
    held: ExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder.mkdir()
    (folder / "math.db").write_bytes(b"no journal at all, but more than nothing" * 100)
    with caplog.at_level(logging.ERROR):
        assert hold(held, journals.open_own("math", AGENTS)).path == folder / "math.2.db"
    assert [record.getMessage() for record in caplog.records] == ["journal.left_out"]
    assert (folder / "math.db").read_bytes().startswith(b"no journal")
