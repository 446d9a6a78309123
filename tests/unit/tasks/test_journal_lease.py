"""A host survives a lease that it can't renew for a while, and stops if the lease is lost."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import NOTHING, define, finish, message
from harness.polling import wait_for
from trunkline.core.settings import Settings
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite import SqliteStore
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State

QUICK = Settings(lease_s=0.3)


class FailingJournal(Journal):
    """A journal whose lease renewal can fail."""

    problem: Exception | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.attempts = asyncio.Semaphore(0)

    async def renew_lease(self, lease_s: float) -> None:
        self.attempts.release()
        if self.problem is not None:
            raise self.problem
        await super().renew_lease(lease_s)


async def test_a_host_takes_no_work_between_the_end_of_its_lease_and_a_renewal(
    tmp_path: Path,
) -> None:
    async def quiet(task: TaskContext) -> None:
        return None

    journal = FailingJournal(SqliteStore.open(tmp_path / "journal.db"), [])
    journal.problem = JournalUnavailableError("journal.db", "the disk is full")
    async with TaskHost(journal, [define(quiet)], settings=QUICK) as host:
        await wait_for(lambda: not host.journals.primary.lease.is_renewed)
        with pytest.raises(JournalUnavailableError, match="its lease has ended"):
            await finish(host)
        journal.problem = None
        snapshot = None
        async with asyncio.timeout(30):
            while snapshot is None:
                await journal.attempts.acquire()
                with suppress(JournalUnavailableError):
                    snapshot = await finish(host)
        assert snapshot.task.status.state == State.TASK_STATE_COMPLETED
    await journal.close()


async def test_a_late_renewal_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def busy(task: TaskContext) -> None:
        # Block the event loop, so that nothing renews the lease before it ends.
        while host.journals.primary.lease.is_renewed:
            time.sleep(0.01)  # noqa: ASYNC251

    journal = FailingJournal(SqliteStore.open(tmp_path / "journal.db"), [])
    async with TaskHost(journal, [define(busy)], settings=QUICK) as host:
        # The lease has no end before its first renewal.
        await journal.attempts.acquire()
        await finish(host)
        async with asyncio.timeout(30):
            while "host.lease_renewed_late" not in caplog.messages:
                await journal.attempts.acquire()
                await asyncio.sleep(0)
        assert not host.lost.is_set()
    await journal.close()


async def test_losing_the_lease_stops_the_agents_code(tmp_path: Path) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def endless(task: TaskContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    journal = FailingJournal(SqliteStore.open(tmp_path / "journal.db"), [])
    async with TaskHost(journal, [define(endless)], settings=QUICK) as host:
        await host.submit("tested", message(), NOTHING)
        await started.wait()
        journal.problem = FencedError("all")
        async with asyncio.timeout(30):
            await stopped.wait()
    assert stopped.is_set()
    await journal.close()
