"""A host opens the free journals of its own family in a data directory."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from harness.journal.builders import created
from trunkline.core.settings import Settings
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite.schema import mark_abandoned
from trunkline.processes.journals import JournalFolder, OpenJournal

AGENTS = {"math", "echo"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def journals(tmp_path: Path) -> JournalFolder:
    return JournalFolder(Settings(data_dir=tmp_path))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def close_later(stack: ExitStack, opened: OpenJournal) -> OpenJournal:
    stack.callback(lambda: asyncio.run(opened.journal.close()))
    return opened


def make_journal(path: Path) -> str:
    """Make a journal without an owner, with a task in it."""

    async def create() -> str:
        journal = Journal.open(path)
        await journal.create(journal.new_task_id(), created())
        await journal.close()
        return journal.id

    return asyncio.run(create())


def abandon(path: Path) -> None:
    """Mark a journal as abandoned by a host that died."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        mark_abandoned(file)


def test_the_first_journal_of_a_host_is_named_after_it(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    own = close_later(stack, journals.open_own("math", AGENTS))
    assert own.path == folder / "math.db"
    assert own.checkpoint_path == folder / "math.db.checkpoints"


def test_an_agent_with_a_dot_has_journals_of_its_own(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    own = close_later(stack, journals.open_own("math.2", AGENTS))
    assert own.path == folder / "math~2.db"
    assert journals.open_free("math", AGENTS) == []
    close_later(stack, journals.open_own("math", AGENTS))
    assert close_later(stack, journals.open_own("math", AGENTS)).path == folder / "math.2.db"


def test_a_restarted_host_reopens_its_journal(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    journal_id = make_journal(folder / "math.db")
    assert close_later(stack, journals.open_own("math", AGENTS)).journal.id == journal_id


def test_a_host_whose_journal_is_in_use_opens_the_next(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    first = close_later(stack, journals.open_own("math", AGENTS))
    second = close_later(stack, journals.open_own("math", AGENTS))
    assert second.path == folder / "math.2.db"
    assert second.journal.id != first.journal.id


def test_hosts_that_start_at_the_same_time_open_a_journal_each(journals: JournalFolder) -> None:
    hosts = 6
    together = threading.Barrier(hosts, timeout=60)

    def start() -> str:
        together.wait()
        opened = journals.open_own("math", AGENTS)
        # None ends before the others have started.
        together.wait()
        asyncio.run(opened.journal.close())
        return opened.path.name

    with ThreadPoolExecutor(hosts) as threads:
        names = [started.result() for started in [threads.submit(start) for _ in range(hosts)]]
    assert sorted(names) == sorted(["math.db", *(f"math.{number}.db" for number in range(2, 7))])


def test_only_the_free_journals_of_the_family_are_opened_as_extras(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    names = ("math.db", "math.2.db", "math.10.db", "math.1.db", "math-2.db", "mathematics.db")
    for name in names:
        make_journal(folder / name)
    (folder / "math.db.checkpoints").touch()
    close_later(stack, OpenJournal(Journal.open(folder / "math.2.db"), folder / "math.2.db"))
    own = close_later(stack, journals.open_own("math", AGENTS))
    opened = [
        close_later(stack, journal).path.name for journal in journals.open_free("math", {"math"})
    ]
    assert own.path.name == "math.db"
    assert opened == ["math.10.db"]


def test_a_journal_with_tasks_of_other_agents_is_not_a_hosts_own(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    make_journal(folder / "math.db")
    assert close_later(stack, journals.open_own("math", {"math"})).path.name == "math.2.db"
    # It is served as an extra journal: no other host opens a released one.
    assert [
        close_later(stack, journal).path.name for journal in journals.open_free("math", {"math"})
    ] == ["math.db"]


def test_a_released_journal_is_opened_if_its_tasks_need_only_these_agents(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    for name in ("currency.db", "research.db", "math.db"):
        make_journal(folder / name)
    asyncio.run(Journal.open(folder / "empty.db").close())
    close_later(stack, OpenJournal(Journal.open(folder / "research.db"), folder / "research.db"))
    close_later(stack, journals.open_own("math", AGENTS))
    assert journals.open_free("math", {"math"}) == []
    (other,) = journals.open_free("math", AGENTS)
    assert close_later(stack, other).path.name == "currency.db"


def test_an_abandoned_journal_with_tasks_of_other_agents_is_not_opened(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    make_journal(folder / "math.db")
    abandon(folder / "math.db")
    assert close_later(stack, journals.open_own("math", {"math"})).path.name == "math.2.db"
    assert journals.open_free("math", {"math"}) == []
    assert [
        close_later(stack, journal).path.name for journal in journals.open_free("math", AGENTS)
    ] == ["math.db"]


def test_unused_journals_without_tasks_are_removed(
    journals: JournalFolder, folder: Path, stack: ExitStack
) -> None:
    own = close_later(stack, journals.open_own("math", AGENTS))
    asyncio.run(Journal.open(folder / "math.2.db").close())
    make_journal(folder / "math.3.db")
    for name in ("math.2.db.checkpoints", "math.3.db.checkpoints"):
        (folder / name).touch()
    opened = [
        close_later(stack, journal).path.name for journal in journals.open_free("math", AGENTS)
    ]
    assert opened == ["math.3.db"]
    assert list(folder.glob("math.2.db*")) == []
    assert (folder / "math.3.db.checkpoints").exists()
    assert own.path.exists()


def test_an_abandoned_journal_without_tasks_is_removed(
    journals: JournalFolder, folder: Path
) -> None:
    asyncio.run(Journal.open(folder / "math.db").close())
    abandon(folder / "math.db")
    (orphan,) = journals.find_orphans()
    assert journals.take_over(orphan) is None
    assert list(folder.iterdir()) == []


def test_a_damaged_journal_is_skipped_and_logged(
    journals: JournalFolder,
    folder: Path,
    stack: ExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder.mkdir()
    (folder / "math.db").write_bytes(b"no journal at all, but more than nothing" * 100)
    with caplog.at_level(logging.ERROR):
        assert close_later(stack, journals.open_own("math", AGENTS)).path == folder / "math.2.db"
    assert [record.getMessage() for record in caplog.records] == ["journal.left_out"]
    assert (folder / "math.db").read_bytes().startswith(b"no journal")
