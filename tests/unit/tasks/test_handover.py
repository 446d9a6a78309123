"""A journal whose tasks wait for agents that aren't here: kept, given back, and taken up again."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from harness.agents.inline_agents import NOTHING, message, texts
from harness.journal.host_death import wait_until_slots_free
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
from trunkline.journal.journal import Journal
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


async def asks(task: TaskContext) -> str | None:
    """Ask, and end with the answer."""
    if task.turn == 1 and task.text != "end":
        await task.require_input("which?")
        return None
    return f"answer: {task.text}"


def named(name: str) -> FunctionAgent:
    return agent(name=name, description="Asks.")(asks)


@asynccontextmanager
async def serving(path: Path, *names: str) -> AsyncIterator[TaskHost]:
    """Serve these agents on a journal of their own."""
    journal = Journal.open(path)
    async with TaskHost(journal, [named(name) for name in names]) as hosts:
        yield hosts
    journal.close()


async def begin(hosts: TaskHost, name: str, text: str = "hello") -> str:
    accepted = await hosts.submit(name, message(text), NOTHING)
    assert isinstance(accepted, SubmitResult)
    await hosts.wait_turn(accepted.task_id)
    return accepted.task_id


async def left_by(path: Path, **counts: int) -> dict[str, str]:
    """Leave a journal with a waiting task of each of these agents, and one that has ended."""
    async with serving(path, *counts) as hosts:
        first = next(iter(counts))
        left = {"ended": await begin(hosts, first, "end")}
        return left | {name: await begin(hosts, name) for name in counts if counts[name]}


async def test_an_answer_where_its_agent_is_not_is_to_be_given_again(tmp_path: Path) -> None:
    left = await left_by(tmp_path / "left.db", math=1)
    async with serving(tmp_path / "own.db", "echo") as hosts:
        await hosts.adopt(Journal.open(tmp_path / "left.db"))
        answer = message("7", task_id=left["math"])
        with pytest.raises(PeerUnavailableError, match="doesn't run it; try again"):
            await hosts.submit("math", answer, NOTHING)
        # As ever: what can't be answered at all, and whose it isn't.
        with pytest.raises(TaskEndedError):
            await hosts.submit("math", message("7", task_id=left["ended"]), NOTHING)
        with pytest.raises(AgentNotFoundError):
            await hosts.submit("currency", answer, NOTHING)
        stranger = message_service_pb2.Submission(account="stranger")
        with pytest.raises(TaskNotFoundError):
            await hosts.submit("math", answer, stranger)
        waits = await hosts.snapshot(left["math"], account="")
        assert waits.task.status.state == State.TASK_STATE_INPUT_REQUIRED


async def test_journals_are_to_be_given_whose_tasks_all_wait_and_some_for_agents_elsewhere(
    tmp_path: Path,
) -> None:
    await left_by(tmp_path / "ours.db", echo=1)
    await left_by(tmp_path / "ended.db", math=0)
    theirs = await left_by(tmp_path / "theirs.db", math=1)
    both = await left_by(tmp_path / "both.db", math=1, echo=1)
    async with serving(tmp_path / "own.db", "echo") as hosts:
        await begin(hosts, "echo")
        for name in ("ours", "ended", "theirs", "both"):
            await hosts.adopt(Journal.open(tmp_path / f"{name}.db"))
        assert hosts.journals_missing_agents() == {
            theirs["math"].partition("-")[0]: frozenset({"math"}),
            both["math"].partition("-")[0]: frozenset({"math", "echo"}),
        }
        # Once what it can go on with has ended, the rest is what counts.
        await hosts.submit("echo", message("7", task_id=both["echo"]), NOTHING)
        await wait_until_slots_free(hosts, both["echo"].partition("-")[0])
        assert hosts.journals_missing_agents()[both["math"].partition("-")[0]] == frozenset(
            {"math"}
        )
        await hosts.cancel(theirs["math"], account="")
        assert theirs["math"].partition("-")[0] not in hosts.journals_missing_agents()


async def test_a_journal_is_not_given_while_something_is_done_in_it(tmp_path: Path) -> None:
    left = await left_by(tmp_path / "left.db", math=1)
    async with serving(tmp_path / "own.db", "echo") as hosts:
        await hosts.adopt(Journal.open(tmp_path / "left.db"))
        (journal_id,) = hosts.journals_missing_agents()
        run = hosts._hosts[journal_id].slots.reserve(left["math"])
        assert hosts.journals_missing_agents() == {}
        hosts._hosts[journal_id].slots.release(run)
        assert list(hosts.journals_missing_agents()) == [journal_id]


async def test_what_is_asked_of_a_journal_that_was_given_back_is_to_be_asked_elsewhere(
    tmp_path: Path,
) -> None:
    left = await left_by(tmp_path / "left.db", math=1)
    task_id = left["math"]
    async with serving(tmp_path / "own.db", "echo") as hosts:
        journal = Journal.open(tmp_path / "left.db")
        await hosts.adopt(journal)
        watch = hosts.watch(task_id, account="", after=0)
        assert watch.take(1 << 16)
        hosts.release_journal(journal.id)
        assert journal.id not in hosts.journal_ids
        config = push_notification_pb2.TaskPushNotificationConfig(
            task_id=task_id, url="https://example.com"
        )
        approval = task_service_pb2.AnswerApprovalRequest(task_id=task_id, approval_id=task_id)
        named_before = message_service_pb2.Submission(task_id=f"{journal.id}-7")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: hosts.submit("math", message("7", task_id=task_id), NOTHING),
            lambda: hosts.submit("math", message("7"), named_before),
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
            hosts.watch(task_id, account="", after=0)
        # Whoever reads on looks for it elsewhere, behind what it has.
        with pytest.raises(JournalUnavailableError):
            watch.take(1 << 16)


async def test_what_was_given_back_is_for_a_takeover_and_its_late_writes_are_refused(
    tmp_path: Path,
) -> None:
    left = await left_by(tmp_path / "left.db", math=1)
    async with serving(tmp_path / "own.db", "echo") as hosts:
        given = Journal.open(tmp_path / "left.db")
        await hosts.adopt(given)
        hosts.release_journal(given.id)
        (orphan,) = [one for one in find_orphaned_journals(tmp_path) if one.journal_id == given.id]
        assert (orphan.agents, orphan.is_only_waiting) == (frozenset({"math"}), True)
        assert 0 <= orphan.lost_for_s < 600
        async with serving(tmp_path / "heir.db", "math") as heir:
            taken = Journal.take_over(orphan.path)
            assert taken.epoch == given.epoch + 1
            await heir.adopt(taken)
            status = task_pb2.TaskStatus(state=State.TASK_STATE_WORKING)
            late = build_draft([event_pb2.Event(status=event_pb2.StatusChanged(status=status))])
            with pytest.raises((FencedError, JournalUnavailableError)):
                await given.append(left["math"], given.epoch, [late])
            await heir.submit("math", message("7", task_id=left["math"]), NOTHING)
            assert texts(await heir.wait_turn(left["math"])) == ["answer: 7"]
            assert texts(await heir.snapshot(left["ended"], account="")) == ["answer: end"]


async def test_a_journal_that_comes_again_is_served_with_its_webhooks(tmp_path: Path) -> None:
    left = await left_by(tmp_path / "left.db", math=1)
    async with serving(tmp_path / "own.db", "echo") as hosts:
        for _ in range(3):
            again = Journal.open(tmp_path / "left.db")
            # The last life may still be ending beside it.
            await hosts.adopt(again)
            config = push_notification_pb2.TaskPushNotificationConfig(
                task_id=left["math"], id="w", url="https://example.com"
            )
            await hosts.push_configs.set(config, account="", version="1.0")
            found, _ = hosts.push_configs.list(left["math"], account="")
            assert [one.id for one in found] == ["w"]
            assert len(await hosts.push_configs.outbox.claim(limit=9)) == 1
            hosts.release_journal(again.id)
            # As its heir does, and dies.
            Journal.take_over(tmp_path / "left.db").close(for_takeover=True)


async def test_who_leaves_leaves_what_waits_for_agents_elsewhere_to_be_taken_over(
    tmp_path: Path,
) -> None:
    await left_by(tmp_path / "ours.db", echo=1)
    await left_by(tmp_path / "theirs.db", math=1)
    async with serving(tmp_path / "own.db", "echo") as hosts:
        for name in ("ours", "theirs"):
            await hosts.adopt(Journal.open(tmp_path / f"{name}.db"))
    assert [one.path.name for one in find_orphaned_journals(tmp_path)] == ["theirs.db"]


async def test_a_damaged_journal_that_is_adopted_ends_nothing_else(tmp_path: Path) -> None:
    await left_by(tmp_path / "left.db", math=1)
    with closing(sqlite3.connect(tmp_path / "left.db")) as file:
        file.execute("DROP TABLE webhooks")
    async with serving(tmp_path / "own.db", "echo") as hosts:
        with pytest.raises(JournalUnavailableError):
            await hosts.adopt(Journal.open(tmp_path / "left.db"))
        assert hosts.journal_ids == (hosts.journal.id,)
        assert await begin(hosts, "echo", "end")
