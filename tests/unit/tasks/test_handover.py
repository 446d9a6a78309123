"""A journal whose tasks wait for agents of other hosts is adopted, released and taken over."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from harness.agents.inline_agents import NOTHING, message, texts
from harness.journal.host_death import wait_until_slots_free
from harness.journal.opening import open_journal, take_over_journal
from trunkline.agents import FunctionAgent, agent
from trunkline.errors import (
    AgentNotFoundError,
    FencedError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
)
from trunkline.journal.events import build_draft
from trunkline.journal.sqlite import find_orphaned_journals
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import (
    event_pb2,
    message_service_pb2,
    push_notification_pb2,
    task_pb2,
    task_service_pb2,
)


async def ask(task: TaskContext) -> str | None:
    """Ask a question, and end with the answer."""
    if task.turn == 1 and task.text != "end":
        await task.require_input("which?")
        return None
    return f"answer: {task.text}"


def make_agent(name: str) -> FunctionAgent:
    return agent(name=name, description="Asks.")(ask)


@asynccontextmanager
async def open_hosts(path: Path, *names: str) -> AsyncIterator[TaskHost]:
    """Open a host with these agents on its own journal."""
    journal = open_journal(path)
    async with TaskHost(journal, [make_agent(name) for name in names]) as hosts:
        yield hosts
    await journal.close()


async def start_task(hosts: TaskHost, name: str, text: str = "hello") -> str:
    accepted = await hosts.submit(name, message(text), NOTHING)
    assert isinstance(accepted, SubmitResult)
    await hosts.wait_turn(accepted.task_id)
    return accepted.task_id


async def write_journal(path: Path, **counts: int) -> dict[str, str]:
    """Write a journal with a waiting task for each of these agents, and an ended one."""
    async with open_hosts(path, *counts) as hosts:
        first = next(iter(counts))
        task_ids = {"ended": await start_task(hosts, first, "end")}
        return task_ids | {name: await start_task(hosts, name) for name in counts if counts[name]}


async def test_an_answer_for_an_agent_of_another_host_is_refused_as_retryable(
    tmp_path: Path,
) -> None:
    task_ids = await write_journal(tmp_path / "left.db", math=1)
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        await hosts.journals.adopt(open_journal(tmp_path / "left.db"))
        answer = message("7", task_id=task_ids["math"])
        with pytest.raises(PeerUnavailableError, match="doesn't run it; try again"):
            await hosts.submit("math", answer, NOTHING)
        # Answers to ended tasks and unknown agents or accounts fail as usual.
        with pytest.raises(TaskEndedError):
            await hosts.submit("math", message("7", task_id=task_ids["ended"]), NOTHING)
        with pytest.raises(AgentNotFoundError):
            await hosts.submit("currency", answer, NOTHING)
        other_account = message_service_pb2.Submission(account="stranger")
        with pytest.raises(TaskNotFoundError):
            await hosts.submit("math", answer, other_account)
        waiting = await hosts.snapshot(task_ids["math"], account="")
        assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED


async def test_journals_whose_waiting_tasks_need_other_agents_are_listed(
    tmp_path: Path,
) -> None:
    await write_journal(tmp_path / "ours.db", echo=1)
    await write_journal(tmp_path / "ended.db", math=0)
    foreign_ids = await write_journal(tmp_path / "theirs.db", math=1)
    mixed_ids = await write_journal(tmp_path / "both.db", math=1, echo=1)
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        await start_task(hosts, "echo")
        for name in ("ours", "ended", "theirs", "both"):
            await hosts.journals.adopt(open_journal(tmp_path / f"{name}.db"))
        assert hosts.journals.find_missing_agents() == {
            foreign_ids["math"].partition("-")[0]: frozenset({"math"}),
            mixed_ids["math"].partition("-")[0]: frozenset({"math", "echo"}),
        }
        # Once the task of the host's own agent has ended, only the others count.
        await hosts.submit("echo", message("7", task_id=mixed_ids["echo"]), NOTHING)
        await wait_until_slots_free(hosts, mixed_ids["echo"].partition("-")[0])
        assert hosts.journals.find_missing_agents()[
            mixed_ids["math"].partition("-")[0]
        ] == frozenset({"math"})
        await hosts.cancel(foreign_ids["math"], account="")
        assert foreign_ids["math"].partition("-")[0] not in hosts.journals.find_missing_agents()


async def test_a_journal_with_a_running_task_is_not_listed(tmp_path: Path) -> None:
    task_ids = await write_journal(tmp_path / "left.db", math=1)
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        await hosts.journals.adopt(open_journal(tmp_path / "left.db"))
        (journal_id,) = hosts.journals.find_missing_agents()
        run = hosts.journals.hosts[journal_id].executions.reserve(task_ids["math"])
        assert hosts.journals.find_missing_agents() == {}
        hosts.journals.hosts[journal_id].executions.release(run)
        assert list(hosts.journals.find_missing_agents()) == [journal_id]


async def test_calls_for_a_released_journal_are_refused_as_retryable(
    tmp_path: Path,
) -> None:
    task_ids = await write_journal(tmp_path / "left.db", math=1)
    task_id = task_ids["math"]
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        journal = open_journal(tmp_path / "left.db")
        await hosts.journals.adopt(journal)
        watch = await hosts.watch(task_id, account="", after=0)
        assert await watch.take(1 << 16)
        await hosts.journals.release(journal.id)
        assert journal.id not in hosts.journals.ids
        config = push_notification_pb2.TaskPushNotificationConfig(
            task_id=task_id, url="https://example.com"
        )
        approval = task_service_pb2.AnswerApprovalRequest(task_id=task_id, approval_id=task_id)
        with_task_id = message_service_pb2.Submission(task_id=f"{journal.id}-7")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: hosts.submit("math", message("7", task_id=task_id), NOTHING),
            lambda: hosts.submit("math", message("7"), with_task_id),
            lambda: hosts.snapshot(task_id, account=""),
            lambda: hosts.cancel(task_id, account=""),
            lambda: hosts.wait_turn(task_id),
            lambda: hosts.answer_approval(approval),
            lambda: hosts.set_alias("", "mine", task_id, replaces=""),
            lambda: hosts.push_configs.set(config, account="", version="1.0"),
        ]
        for call in calls:
            with pytest.raises(PeerUnavailableError, match="another host has its journal"):
                await call()
        with pytest.raises(PeerUnavailableError):
            await hosts.watch(task_id, account="", after=0)
        # The reader continues on another host, after its cursor.
        with pytest.raises(JournalUnavailableError):
            await watch.take(1 << 16)


async def test_a_released_journal_can_be_taken_over_and_refuses_late_writes(
    tmp_path: Path,
) -> None:
    task_ids = await write_journal(tmp_path / "left.db", math=1)
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        released = open_journal(tmp_path / "left.db")
        await hosts.journals.adopt(released)
        await hosts.journals.release(released.id)
        (orphan,) = [
            candidate
            for candidate in find_orphaned_journals(tmp_path)
            if candidate.journal_id == released.id
        ]
        assert (orphan.agents, orphan.is_only_waiting) == (frozenset({"math"}), True)
        assert 0 <= orphan.lost_for_s < 600
        async with open_hosts(tmp_path / "heir.db", "math") as next_host:
            taken_over = take_over_journal(tmp_path / f"{orphan.name}.db")
            assert taken_over.epoch == released.epoch + 1
            await next_host.journals.adopt(taken_over)
            status = task_pb2.TaskStatus(state=State.TASK_STATE_WORKING)
            late = build_draft([event_pb2.Event(status=event_pb2.StatusChanged(status=status))])
            with pytest.raises((FencedError, JournalUnavailableError)):
                await released.append(task_ids["math"], released.epoch, [late])
            await next_host.submit("math", message("7", task_id=task_ids["math"]), NOTHING)
            assert texts(await next_host.wait_turn(task_ids["math"])) == ["answer: 7"]
            assert texts(await next_host.snapshot(task_ids["ended"], account="")) == ["answer: end"]


async def test_a_journal_that_is_adopted_again_has_its_webhooks(tmp_path: Path) -> None:
    task_ids = await write_journal(tmp_path / "left.db", math=1)
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        for _ in range(3):
            reopened = open_journal(tmp_path / "left.db")
            # The previous adoption may still be closing.
            await hosts.journals.adopt(reopened)
            config = push_notification_pb2.TaskPushNotificationConfig(
                task_id=task_ids["math"], id="w", url="https://example.com"
            )
            await hosts.push_configs.set(config, account="", version="1.0")
            configs, _ = await hosts.push_configs.list(task_ids["math"], account="")
            assert [item.id for item in configs] == ["w"]
            assert len(await hosts.push_configs.outbox.claim(limit=9)) == 1
            await hosts.journals.release(reopened.id)
            # Take the journal over and die, as another host would.
            await take_over_journal(tmp_path / "left.db").close(for_takeover=True)


async def test_a_closed_host_leaves_journals_with_unfinished_tasks_to_others(
    tmp_path: Path,
) -> None:
    await write_journal(tmp_path / "ours.db", echo=1)
    await write_journal(tmp_path / "theirs.db", math=1)
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        for name in ("ours", "theirs"):
            await hosts.journals.adopt(open_journal(tmp_path / f"{name}.db"))
    orphans = find_orphaned_journals(tmp_path)
    assert {orphan.name for orphan in orphans if orphan.agents} == {"ours", "theirs"}


async def test_adopting_a_damaged_journal_affects_no_other(tmp_path: Path) -> None:
    await write_journal(tmp_path / "left.db", math=1)
    with closing(sqlite3.connect(tmp_path / "left.db")) as file:
        file.execute("DROP TABLE webhooks")
    async with open_hosts(tmp_path / "own.db", "echo") as hosts:
        with pytest.raises(JournalUnavailableError):
            await hosts.journals.adopt(open_journal(tmp_path / "left.db"))
        assert hosts.journals.ids == (hosts.journal.id,)
        assert await start_task(hosts, "echo", "end")
