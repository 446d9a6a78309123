"""Limits per tree of tasks: each host checks them when a task is submitted."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.agents.inline_agents import (
    OpenHost,
    define,
    define_runtime,
    finish,
    message,
    status_texts,
)
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from trunkline.core.settings import Settings, TreeSettings
from trunkline.errors import InvalidArgumentError, TreeLimitError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_service_pb2, tree_pb2


async def quiet(task: TaskContext) -> None:
    return None


def position(*agents: str, **budget: int) -> tree_pb2.TreePosition:
    """A position below a chain of agents."""
    ancestors = [tree_pb2.Ancestor(agent=name, task_id=f"j-{name}") for name in agents]
    return tree_pb2.TreePosition(ancestors=ancestors, budget=tree_pb2.TreeBudget(**budget))


def child_of(*agents: str, **budget: int) -> message_service_pb2.Submission:
    """The submission of a task that the last agent of a chain calls."""
    parent = event_pb2.ParentTask(task_id=f"j-{agents[-1]}", agent=agents[-1], path=agents)
    return message_service_pb2.Submission(parent=parent, tree=position(*agents, **budget))


def late(submission: message_service_pb2.Submission) -> message_service_pb2.Submission:
    submission.deadline.FromDatetime(datetime.now(UTC) - timedelta(seconds=1))
    return submission


@pytest.mark.parametrize(
    ("submission", "limits", "limit", "chain"),
    [
        (child_of("a", "b", "c"), {"depth": 3}, "depth", "a > b > c > tested"),
        # Without positions, the chain is the path of the parent.
        (
            message_service_pb2.Submission(parent=child_of("a", "b").parent),
            {"depth": 2},
            "depth",
            "a > b > tested",
        ),
        (child_of("tested", "b"), {"circles": 0}, "circles", "tested > b > tested"),
        (child_of("a", levels=0), {}, "depth", "a > tested"),
        (child_of("a", tasks=0), {}, "tasks", "a > tested"),
        (child_of("a", tokens=0), {}, "tokens", "a > tested"),
        (child_of("a", cost_micros=0), {}, "cost", "a > tested"),
        (late(child_of("a")), {}, "time", "a > tested"),
    ],
    ids=["depth", "path", "circles", "levels", "tasks", "tokens", "cost", "time"],
)
async def test_a_task_over_a_limit_is_refused_and_the_error_names_the_chain(
    open_host: OpenHost,
    submission: message_service_pb2.Submission,
    limits: dict[str, int],
    limit: str,
    chain: str,
) -> None:
    host = await open_host(define(quiet), settings=Settings(tree=TreeSettings(**limits)))
    with pytest.raises(TreeLimitError, match=chain) as refused:
        await host.submit("tested", message(), submission)
    assert (refused.value.limit, refused.value.chain) == (limit, chain)


async def test_an_agent_may_be_asked_again_once_by_those_it_asked(open_host: OpenHost) -> None:
    host = await open_host(define(quiet))
    task = await finish(host, parent=child_of("tested", "b").parent, tree=position("tested", "b"))
    assert task.task.status.state == State.TASK_STATE_COMPLETED
    with pytest.raises(TreeLimitError, match="tested > b > tested > c > tested"):
        await host.submit("tested", message(), child_of("tested", "b", "tested", "c"))


async def test_the_limit_of_time_is_the_deadline_of_a_root(open_host: OpenHost) -> None:
    settings = Settings(tree=TreeSettings(timeout_s=50))
    host = await open_host(define(quiet), settings=settings)
    root = await finish(host)
    seconds = root.deadline.ToDatetime(tzinfo=UTC) - root.create_time.ToDatetime(tzinfo=UTC)
    assert 40 < seconds.total_seconds() < 60
    child = await finish(host, parent=child_of("a").parent, tree=position("a"))
    assert not child.HasField("deadline")


async def test_a_host_gives_no_more_than_its_own_limits(open_host: OpenHost) -> None:
    settings = Settings(tree=TreeSettings(depth=5, tasks=10, tokens=100, cost=0.5))
    host = await open_host(define(quiet), settings=settings)
    generous = position("a", levels=50, tasks=50, tokens=5000, cost_micros=10**9)
    task = await finish(host, parent=child_of("a").parent, tree=generous)
    budget = task.tree.budget
    assert (budget.levels, budget.tasks, budget.tokens, budget.cost_micros) == (
        4,
        10,
        100,
        500_000,
    )


@pytest.mark.parametrize(
    "tree",
    [
        position(*["a"] * 65),
        position("somebody-else"),
        position("a" * 300),
        position("a\n> forged"),
    ],
)
async def test_a_malformed_chain_is_refused(
    open_host: OpenHost, tree: tree_pb2.TreePosition
) -> None:
    host = await open_host(define(quiet))
    submission = message_service_pb2.Submission(parent=child_of("b").parent, tree=tree)
    with pytest.raises(InvalidArgumentError, match="tree"):
        await host.submit("tested", message(), submission)


def started(task: TurnRuntime, child_id: str, *, shares: int = 1) -> event_pb2.Event:
    budget = task.tree.reserve(child_id, "worker", shares=shares)
    event = event_pb2.ChildStarted(task_id=child_id, agent="worker", budget=budget)
    return event_pb2.Event(child_started=event)


def finished(child_id: str, **usage: int) -> event_pb2.Event:
    event = event_pb2.ChildFinished(
        task_id=child_id,
        agent="worker",
        state=State.TASK_STATE_COMPLETED,
        usage=tree_pb2.TreeUsage(**usage),
    )
    return event_pb2.Event(child_finished=event)


async def test_children_share_what_remains_and_return_what_they_do_not_use(
    open_host: OpenHost,
) -> None:
    budgets: list[tree_pb2.TreeBudget] = []

    async def supervise(task: TurnRuntime) -> None:
        for number in range(3):
            await task.record(started(task, f"c-{number}", shares=3 - number))
        budgets.extend(task.child_submission(f"c-{number}").tree.budget for number in range(3))
        for number in range(3):
            await task.record(finished(f"c-{number}", tasks=1, tokens=10))
        await task.record(started(task, "c-3"))
        budgets.append(task.child_submission("c-3").tree.budget)
        await task.record(finished("c-3", tasks=0, tokens=5))

    settings = Settings(tree=TreeSettings(tasks=31, tokens=300))
    host = await open_host(define_runtime(supervise), settings=settings)
    task = await finish(host)

    assert [budget.tasks for budget in budgets] == [10, 10, 10, 24]
    assert [budget.tokens for budget in budgets] == [100, 100, 100, 270]
    assert (task.usage.tasks, task.usage.tokens) == (7, 35)
    assert task.children[0].started.budget.tasks == 10


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"children": 2}, "children"),
        ({"tasks": 3}, "tasks"),
        ({"depth": 1}, "depth"),
    ],
)
async def test_a_task_over_a_limit_calls_no_more_children(
    open_host: OpenHost, limits: dict[str, int], limit: str
) -> None:
    async def supervise(task: TurnRuntime) -> None:
        for number in range(3):
            await task.record(started(task, f"c-{number}", shares=3 - number))

    settings = Settings(tree=TreeSettings(**limits))
    host = await open_host(define_runtime(supervise), settings=settings)
    task = await finish(host)

    assert task.task.status.state == State.TASK_STATE_FAILED
    assert "tested > worker" in status_texts(task)
    assert limit in status_texts(task)


async def test_a_takeover_keeps_the_chain_and_what_is_reserved(
    journal_path: Path, open_host: OpenHost
) -> None:
    reached = asyncio.Event()
    trees: list[tree_pb2.TreePosition] = []

    async def supervise(task: TurnRuntime) -> None:
        if task.attempt == 1:
            await task.record(started(task, "c-1", shares=2), started(task, "c-2"))
            await task.record(finished("c-2", tasks=3, tokens=7))
        trees.append(task.child_submission("c-1").tree)
        if task.attempt == 1:
            reached.set()
            await asyncio.Event().wait()
        assert task.tree.remaining().tasks == 15 - 7 - 4

    agent = define_runtime(supervise, resumable=True)
    host = TaskHost(open_journal(journal_path), [agent])
    await host.__aenter__()
    submission = child_of("a", tasks=16)
    accepted = await host.submit("tested", message(), submission)
    assert isinstance(accepted, SubmitResult)
    async with asyncio.timeout(30):
        await reached.wait()
    await kill_host(host)
    task = await (await open_host(agent)).wait_turn(accepted.task_id)

    assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
    assert trees[0] == trees[1]
    assert [ancestor.agent for ancestor in trees[0].ancestors] == ["a", "tested"]
    assert trees[0].budget.tasks == 7
    assert task.usage.tokens == 7


async def test_the_next_turn_continues_with_what_the_last_has_left(open_host: OpenHost) -> None:
    remaining: list[int] = []

    async def think(task: TurnRuntime) -> None:
        remaining.append(task.tree.remaining().tokens)
        task.tree.add_model_call(tokens=30, cost_micros=0)
        if task.turn == 1:
            await task.record(started(task, "c-1", shares=2), finished("c-1", tasks=0, tokens=20))
            await task.require_input("more?")

    host = await open_host(define_runtime(think), settings=Settings(tree=TreeSettings(tokens=100)))
    first = await finish(host)
    await host.submit(
        "tested", message(message_id="m-2", task_id=first.task.id), message_service_pb2.Submission()
    )
    last = await host.wait_turn(first.task.id)

    assert remaining == [100, 50]
    assert last.usage.tokens == 80
