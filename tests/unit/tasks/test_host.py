"""Several journals on one host."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.agents.inline_agents import NOTHING, define, finish, message, start
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from trunkline.agents import FunctionAgent
from trunkline.errors import PeerUnavailableError, TaskNotFoundError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import snapshot_pb2, task_service_pb2


async def answer(task: TaskContext) -> str:
    return f"{task.text} {task.attempt}"


@asynccontextmanager
async def open_hosts(folder: Path, agent: FunctionAgent) -> AsyncIterator[TaskHost]:
    journal = open_journal(folder / "primary.db")
    async with TaskHost(journal, [agent]) as hosts:
        yield hosts
    await journal.close()


async def write_dead_journal(path: Path, count: int) -> list[str]:
    """Make a journal with ended tasks, and a running one whose host dies."""
    started = asyncio.Event()

    async def stuck(task: TaskContext) -> str:
        if task.text == "stuck":
            await task.artifact().append("half of it")
            started.set()
            await asyncio.Event().wait()
        return "done"

    host = TaskHost(open_journal(path), [define(stuck)])
    await host.__aenter__()
    ids = [(await finish(host)).task.id for _ in range(count)]
    task_id = await start(host, "stuck")
    await started.wait()
    await kill_host(host)
    return [*ids, task_id]


async def test_a_list_pages_over_all_journals(tmp_path: Path) -> None:
    dead = await write_dead_journal(tmp_path / "dead.db", 4)
    async with open_hosts(tmp_path, define(answer)) as hosts:
        own_ids = [(await finish(hosts)).task.id for _ in range(3)]
        await hosts.journals.adopt(open_journal(tmp_path / "dead.db"))
        await hosts.wait_turn(dead[-1])
        rows: list[snapshot_pb2.TaskSummary] = []
        token = ""
        while True:
            request = task_service_pb2.ListTasksRequest(page_size=3, page_token=token)
            page = await hosts.list(request)
            assert page.total_size == len(dead) + len(own_ids)
            rows += page.tasks
            token = page.next_page_token
            if not token:
                break
    assert {row.task_id for row in rows} == {*dead, *own_ids}
    assert len(rows) == len(dead) + len(own_ids)
    times = [row.status.timestamp.ToNanoseconds() for row in rows]
    assert times == sorted(times, reverse=True)


async def test_losing_one_journal_stops_only_its_tasks(tmp_path: Path) -> None:
    running = asyncio.Event()

    async def endless(task: TaskContext) -> None:
        running.set()
        await asyncio.Event().wait()

    _, stuck = await write_dead_journal(tmp_path / "dead.db", 1)
    async with open_hosts(tmp_path, define(endless, repeatable=True)) as hosts:
        await hosts.journals.adopt(open_journal(tmp_path / "dead.db"))
        async with asyncio.timeout(30):
            await running.wait()
        adopted = hosts.journals.hosts[stuck.partition("-")[0]]
        watch = await hosts.watch(stuck, account="", after=0)
        adopted.lease.mark_lost()
        with pytest.raises(PeerUnavailableError):
            await adopted.get_account_row(stuck, account="")
        with pytest.raises((TaskNotFoundError, PeerUnavailableError)):
            await hosts.cancel(stuck, account="")
        with pytest.raises(Exception, match="closed"):
            async for _ in watch:
                pass
        own_task = await hosts.submit("tested", message(), NOTHING)
        assert isinstance(own_task, SubmitResult)
        canceled = await hosts.cancel(own_task.task_id, account="")
        assert canceled.task.status.state == State.TASK_STATE_CANCELED


async def test_an_alias_is_resolved_from_an_adopted_journal(tmp_path: Path) -> None:
    dead = await write_dead_journal(tmp_path / "dead.db", 1)
    async with open_hosts(tmp_path, define(answer)) as hosts:
        own_ids = (await finish(hosts)).task.id
        adopted = open_journal(tmp_path / "dead.db")
        await adopted.aliases.bind("anonymous", "mine", dead[0])
        await hosts.journals.adopt(adopted)
        assert await hosts.resolve_alias("", "mine") == dead[0]
        assert await hosts.set_alias("", "mine", own_ids, replaces="") == dead[0]
        assert await hosts.set_alias("", "mine", own_ids, replaces=dead[0]) == own_ids
        assert await hosts.resolve_alias("", "mine") == own_ids
        assert await hosts.journals.primary.journal.aliases.find("anonymous", "mine") is None
        assert await hosts.resolve_alias("", "yours") == ""
