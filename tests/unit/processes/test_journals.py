"""A host opens the free journals of its own family in a data directory."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from harness.journal.builders import completed, created
from harness.journal.opening import open_journal
from harness.logs import find_logged
from trunkline.conversations.sqlite import open_memory_of_process
from trunkline.conversations.store import StoredCheckpoint, ThreadKey
from trunkline.core.settings import Settings
from trunkline.journal.events import build_draft
from trunkline.journal.sqlite.schema import mark_abandoned
from trunkline.journal.store import LIVE_WEBHOOKS, WebhookRow
from trunkline.processes.journals import HostJournals, OpenJournal
from trunkline.v1 import webhook_service_pb2

AGENTS = {"math", "echo"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def journals(tmp_path: Path) -> HostJournals:
    return HostJournals(Settings(data_dir=tmp_path), None)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def close_later(stack: AsyncExitStack, opened: OpenJournal) -> OpenJournal:
    stack.push_async_callback(opened.journal.close)
    return opened


def write_other_file(path: Path) -> None:
    """Write a file that is no journal."""
    path.parent.mkdir()
    path.write_bytes(b"no journal at all, but more than nothing" * 100)


def list_files(folder: Path, pattern: str = "*") -> list[Path]:
    return list(folder.glob(pattern))


async def make_journal(path: Path) -> str:
    """Make a journal without an owner, with a task in it."""
    async with open_journal(path) as journal:
        await journal.create(journal.new_task_id(), created())
    return journal.id


def open_by_path(path: Path) -> OpenJournal:
    """Open a journal as another host does."""
    return OpenJournal(open_journal(path), open_memory_of_process(), path)


def abandon(path: Path) -> None:
    """Mark a journal as abandoned by a host that died."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        mark_abandoned(file)


async def test_the_first_journal_of_a_host_is_named_after_it(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    own = close_later(stack, await journals.open_own("math", AGENTS))
    assert own.path == folder / "math.db"
    await own.memory.checkpoints.put(
        ThreadKey("one"), StoredCheckpoint("ff", None, "null", b"", b"{}")
    )
    await own.memory.close()
    assert (folder / "math.db.checkpoints").exists()


async def test_an_agent_with_a_dot_has_journals_of_its_own(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    own = close_later(stack, await journals.open_own("math.2", AGENTS))
    assert own.path == folder / "math~2.db"
    close_later(stack, await journals.open_own("math", AGENTS))
    assert close_later(stack, await journals.open_own("math", AGENTS)).path == folder / "math.2.db"


async def test_a_restarted_host_reopens_its_journal(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    journal_id = await make_journal(folder / "math.db")
    assert close_later(stack, await journals.open_own("math", AGENTS)).journal.id == journal_id


async def test_a_host_whose_journal_is_in_use_opens_the_next(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    first = close_later(stack, await journals.open_own("math", AGENTS))
    second = close_later(stack, await journals.open_own("math", AGENTS))
    assert second.path == folder / "math.2.db"
    assert second.journal.id != first.journal.id


async def test_hosts_that_start_at_the_same_time_open_a_journal_each(
    journals: HostJournals, stack: AsyncExitStack
) -> None:
    hosts = 6
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(journals.open_own("math", AGENTS)) for _ in range(hosts)]
    names = [close_later(stack, start.result()).path.name for start in starts]
    assert sorted(names) == sorted(["math.db", *(f"math.{number}.db" for number in range(2, 7))])


async def finish_journal(path: Path) -> str:
    """Make a journal without an owner, with a task that has ended; return the task's id."""
    async with open_journal(path) as journal:
        task_id = journal.new_task_id()
        await journal.create(task_id, created())
        end = build_draft([completed()])
        await journal.append(task_id, journal.epoch, [end])
    return task_id


async def test_released_journals_without_unfinished_tasks_belong_to_their_family(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    names = ("math.db", "math.2.db", "math.10.db", "math.1.db", "math-2.db", "mathematics.db")
    for name in names:
        await finish_journal(folder / name)
    (folder / "math.db.checkpoints").touch()
    close_later(stack, open_by_path(folder / "math.2.db"))
    own = close_later(stack, await journals.open_own("math", AGENTS))
    assert own.path.name == "math.db"
    assert [orphan.name for orphan in await journals.find_orphans()] == ["math.10"]


async def test_a_journal_with_tasks_of_other_agents_is_not_a_hosts_own(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    await make_journal(folder / "math.db")
    assert close_later(stack, await journals.open_own("math", {"math"})).path.name == "math.2.db"
    # A host that runs these agents continues them.
    assert [orphan.name for orphan in await journals.find_orphans()] == ["math"]


async def test_any_host_may_take_unfinished_tasks_of_a_journal_that_was_released(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    await make_journal(folder / "currency.db")
    await finish_journal(folder / "research.db")
    await open_journal(folder / "empty.db").close()
    close_later(stack, await journals.open_own("math", AGENTS))
    (orphan,) = await journals.find_orphans()
    assert (orphan.name, orphan.agents) == ("currency", frozenset({"echo"}))


async def test_any_host_may_take_a_journal_with_webhooks_that_was_released(
    journals: HostJournals, folder: Path
) -> None:
    (live, *_) = LIVE_WEBHOOKS
    for name, state in (("live", live), ("done", webhook_service_pb2.WEBHOOK_STATE_DONE)):
        path = folder / f"{name}.db"
        task_id = await finish_journal(path)
        async with open_journal(path) as journal:
            await journal.webhooks.save(WebhookRow(task_id, "hook", state, b""))
    (orphan,) = await journals.find_orphans()
    assert orphan.name == "live"


async def test_unused_journals_without_tasks_are_removed(
    journals: HostJournals, folder: Path, stack: AsyncExitStack
) -> None:
    own = close_later(stack, await journals.open_own("math", AGENTS))
    await open_journal(folder / "math.2.db").close()
    await make_journal(folder / "math.3.db")
    for name in ("math.2.db.checkpoints", "math.3.db.checkpoints"):
        (folder / name).touch()
    for orphan in await journals.find_orphans():
        if (taken := await journals.take_over(orphan)) is not None:
            assert close_later(stack, taken).path.name == "math.3.db"
    assert list_files(folder, "math.2.db*") == []
    assert (folder / "math.3.db.checkpoints").exists()
    assert own.path.exists()


async def test_an_abandoned_journal_without_tasks_is_removed(
    journals: HostJournals, folder: Path
) -> None:
    await open_journal(folder / "math.db").close()
    abandon(folder / "math.db")
    (orphan,) = await journals.find_orphans()
    assert await journals.take_over(orphan) is None
    assert list_files(folder) == []


async def test_a_damaged_journal_is_skipped_and_logged(
    journals: HostJournals,
    folder: Path,
    stack: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_other_file(folder / "math.db")
    with caplog.at_level(logging.ERROR):
        own = close_later(stack, await journals.open_own("math", AGENTS))
    assert own.path == folder / "math.2.db"
    assert [record.getMessage() for record in find_logged(caplog)] == ["journal.left_out"]
    assert (folder / "math.db").read_bytes().startswith(b"no journal")


async def test_a_damaged_journal_beside_the_own_is_logged_once(
    journals: HostJournals,
    folder: Path,
    stack: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_other_file(folder / "math.2.db")
    close_later(stack, await journals.open_own("math", AGENTS))
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert await journals.find_orphans() == []
    assert [record.getMessage() for record in find_logged(caplog)] == ["journal.left_out"]
