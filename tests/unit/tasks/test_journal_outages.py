"""Tasks wait while their journal can't be written, and lose nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import (
    NOTHING,
    define,
    finish,
    message,
    start,
    status_texts,
    texts,
)
from harness.journal.full_disk import full_disk, wait_for_failures
from harness.journal.opening import open_journal
from trunkline.core.settings import Settings
from trunkline.errors import JournalUnavailableError, PeerUnavailableError
from trunkline.journal.journal import Journal
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State

# 64 such pieces are more than a task may hold while its journal can't be written.
PIECE = "piece " * 180


@pytest.fixture
async def journal(journal_path: Path) -> AsyncIterator[Journal]:
    opened = open_journal(journal_path)
    yield opened
    await opened.close()


async def test_tasks_continue_when_the_disk_has_space_again(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    started = asyncio.Event()
    released = asyncio.Event()
    written = 0

    async def count(task: TaskContext) -> None:
        nonlocal written
        artifact = task.artifact()
        await artifact.append(f"0 {PIECE}")
        started.set()
        await released.wait()
        for number in range(1, 200):
            await artifact.append(f"{number} {PIECE}")
            written = max(written, number)

    async with TaskHost(journal, [define(count)]) as host:
        ids = [await start(host) for _ in range(3)]
        await started.wait()
        with caplog.at_level(logging.WARNING):
            with full_disk() as failures:
                released.set()
                await wait_for_failures(failures, 4)
                assert written < 199
                with pytest.raises(JournalUnavailableError):
                    await host.submit("tested", message(), NOTHING)
            for task_id in ids:
                ended = await host.wait_turn(task_id)
                assert ended.task.status.state == State.TASK_STATE_COMPLETED
                assert texts(ended) == ["".join(f"{number} {PIECE}" for number in range(200))]
        await finish(host)
    journal_logs = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("journal.")
    ]
    assert journal_logs == ["journal.unavailable", "journal.available"]


async def test_a_cancel_takes_effect_once_the_journal_is_writable(journal: Journal) -> None:
    started = asyncio.Event()

    async def endless(task: TaskContext) -> None:
        await task.artifact().append("so far")
        started.set()
        await asyncio.Event().wait()

    async with TaskHost(journal, [define(endless)]) as host, asyncio.TaskGroup() as group:
        task_id = await start(host)
        await started.wait()
        await journal.wait(task_id, 2)
        with full_disk() as failures:
            cancel = group.create_task(host.cancel(task_id, account=""))
            await wait_for_failures(failures, 2)
            assert not cancel.done()
        canceled = await cancel
        assert canceled.task.status.state == State.TASK_STATE_CANCELED


async def test_an_answer_that_cannot_be_written_may_be_sent_again(journal: Journal) -> None:

    async def ask(task: TaskContext) -> str | None:
        if task.turn == 1:
            await task.require_input("?")
            return None
        return task.text

    async with TaskHost(journal, [define(ask)]) as host:
        waiting = await finish(host)
        answer = message("answer", task_id=waiting.task.id)
        with full_disk(), pytest.raises(JournalUnavailableError):
            await host.submit("tested", answer, NOTHING)
        await host.submit("tested", answer, NOTHING)
        ended = await host.wait_turn(waiting.task.id)
        assert (texts(ended), len(ended.task.history)) == (["answer"], 3)


async def test_addresses_of_other_hosts_are_redacted(journal: Journal) -> None:
    async def caller(task: TaskContext) -> Any:
        await task.working()
        raise PeerUnavailableError("10.1.2.3:5001", "ipv4:10.1.2.3:5001: [Errno 111] refused")

    async with TaskHost(journal, [define(caller)]) as host:
        ended = await finish(host)
    assert status_texts(ended) == "the agent's host can't be reached: the agent's host: refused"


async def test_an_error_of_another_hosts_journal_fails_the_task(
    journal: Journal,
) -> None:
    async def caller(task: TaskContext) -> Any:
        await task.working()
        raise JournalUnavailableError("elsewhere.db", "the disk is full")

    async with TaskHost(journal, [define(caller)]) as host:
        ended = await finish(host)
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert status_texts(ended) == "journal of the agent's host: the disk is full"


async def test_an_unrequested_cancellation_fails_the_task(journal: Journal) -> None:
    async def broken(task: TaskContext) -> Any:
        await task.working()
        raise asyncio.CancelledError

    async with TaskHost(journal, [define(broken)]) as host:
        ended = await finish(host)
    assert ended.task.status.state == State.TASK_STATE_FAILED


async def test_a_host_that_stops_waits_once_for_a_full_disk(journal: Journal) -> None:
    settings = Settings(cancel_grace_s=0.5)
    started = asyncio.Event()

    async def count(task: TaskContext) -> None:
        artifact = task.artifact()
        while True:
            await artifact.append(PIECE)
            started.set()

    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(
            TaskHost(journal, [define(count)], settings=settings)
        )
        await start(host)
        await started.wait()
        with full_disk() as failures:
            await wait_for_failures(failures, 1)
            stopped_s = loop.time()
            await host.drain(0)
            await stack.aclose()
            # The code has half a second to clean up, and its end a second to be written.
            assert loop.time() - stopped_s < 2 * (settings.cancel_grace_s + 1)
