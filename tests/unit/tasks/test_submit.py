"""Submission is idempotent, limited, and survives the end of a host."""

import asyncio
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, message, status_texts
from harness.journal.opening import open_journal
from harness.polling import wait_for
from trunkline.agents.authoring import FunctionAgent
from trunkline.core.task_states import StateValue
from trunkline.errors import (
    MessageKeyReusedError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.journal import CreateResult, Journal
from trunkline.tasks.context import TaskContext
from trunkline.tasks.execution import ExecutionState
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import envelope_pb2, message_pb2, message_service_pb2, task_service_pb2

ONCE = message_service_pb2.Submission(idempotent=True, caller="alice")


async def quiet(task: TaskContext) -> None:
    return None


async def count(host: TaskHost) -> int:
    return (await host.list(task_service_pb2.ListTasksRequest())).total_size


async def accept(
    host: TaskHost,
    message_: message_pb2.Message,
    submission: message_service_pb2.Submission = NOTHING,
) -> SubmitResult:
    accepted = await host.submit("tested", message_, submission)
    assert isinstance(accepted, SubmitResult)
    return accepted


@pytest.mark.parametrize("direct_replies", [False, True])
async def test_one_key_makes_one_task(open_host: OpenHost, direct_replies: bool) -> None:
    turns = 0

    async def count_turns(task: TaskContext) -> str:
        nonlocal turns
        turns += 1
        return "done"

    host = await open_host(define(count_turns, direct_replies=direct_replies))
    async with asyncio.TaskGroup() as group:
        submits = [group.create_task(accept(host, message(), ONCE)) for _ in range(20)]
    task_ids = {submit.result().task_id for submit in submits}
    assert len(task_ids) == 1
    assert (await accept(host, message(), ONCE)).task_id in task_ids
    assert await count(host) == 1
    assert sum(submit.result().is_new for submit in submits) == 1
    # The code of the other submissions is stopped, and their places are free.
    await wait_for(lambda: not host.journals.primary.executions.all())


@dataclass(frozen=True, slots=True)
class SlowLimit(FunctionAgent):
    """An agent that reads its time limit from a store, as a workflow does."""

    async def find_time_limit_s(self, message: message_pb2.Message) -> float | None:
        """Return no limit, after other submissions had their turn."""
        await asyncio.sleep(0.01)
        return None


async def test_one_task_id_makes_one_task_though_its_time_limit_is_read_meanwhile(
    open_host: OpenHost,
) -> None:
    turns = 0

    async def count_turns(task: TaskContext) -> str:
        nonlocal turns
        turns += 1
        return "done"

    defined = define(count_turns, direct_replies=True)
    host = await open_host(
        SlowLimit(**{field.name: getattr(defined, field.name) for field in fields(defined)})
    )
    named = message_service_pb2.Submission(task_id=host.journal.new_task_id())
    async with asyncio.TaskGroup() as group:
        submits = [group.create_task(accept(host, message(), named)) for _ in range(5)]
    assert {submit.result().task_id for submit in submits} == {named.task_id}
    await host.wait_turn(named.task_id)
    assert turns == 1
    stranger = message_service_pb2.Submission(task_id=named.task_id, account="another")
    with pytest.raises(TaskNotFoundError):
        await accept(host, message(), stranger)


@pytest.mark.parametrize(
    ("repeatable", "state"),
    [(True, State.TASK_STATE_SUBMITTED), (False, State.TASK_STATE_FAILED)],
)
async def test_code_does_not_begin_on_a_host_that_stops_while_the_task_is_written(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, repeatable: bool, state: StateValue
) -> None:
    has_begun, may_end, runs = asyncio.Event(), asyncio.Event(), asyncio.Event()
    create = Journal.create

    def create_late(*args: Any, **options: Any) -> asyncio.Future[CreateResult]:
        has_begun.set()
        return group.create_task(wait_and_create(create(*args, **options)))

    async def wait_and_create(write: asyncio.Future[CreateResult]) -> CreateResult:
        await may_end.wait()
        return await write

    async def note_run(task: TaskContext) -> None:
        runs.set()

    host = await open_host(define(note_run, repeatable=repeatable))
    executions = host.journals.primary.executions
    monkeypatch.setattr(Journal, "create", create_late)
    async with asyncio.TaskGroup() as group:
        submit = group.create_task(accept(host, message()))
        await has_begun.wait()
        (execution,) = executions.all()
        drain = group.create_task(host.drain(0))
        await wait_for(lambda: execution.state is not ExecutionState.RESERVED)
        may_end.set()
        assert (await submit).is_new
        await drain

    assert executions.all() == []
    assert not runs.is_set()
    snapshot = await host.snapshot(submit.result().task_id, account="")
    assert snapshot.task.status.state == state


@pytest.mark.parametrize("direct_replies", [False, True])
async def test_a_key_with_other_content_is_refused_and_affects_no_other_task(
    open_host: OpenHost, direct_replies: bool
) -> None:
    async def stubborn(task: TaskContext) -> str:
        try:
            await task.working()
        except asyncio.CancelledError:
            await task.working("on and on")
        return task.text

    host = await open_host(define(stubborn, direct_replies=direct_replies))
    await accept(host, message("one"), ONCE)
    with pytest.raises(MessageKeyReusedError, match="m-1"):
        await host.submit("tested", message("two"), ONCE)
    second = await accept(host, message("three"))
    final = await host.wait_turn(second.task_id)
    assert final.task.status.state == State.TASK_STATE_COMPLETED
    assert await count(host) == 2


async def test_a_task_id_of_the_parent_is_accepted_and_idempotent(
    open_host: OpenHost,
) -> None:
    host = await open_host(define(quiet))
    task_id = f"{host.journal.id}-child00000000001"
    submission = message_service_pb2.Submission(task_id=task_id)
    first = await accept(host, message(), submission)
    await host.wait_turn(task_id)
    second = await accept(host, message(), submission)
    assert (first.task_id, first.is_new) == (task_id, True)
    assert (second.task_id, second.is_new) == (task_id, False)
    # The caller chose the host that has this journal, and this host does not.
    with pytest.raises(PeerUnavailableError, match="another host has its journal"):
        await host.submit(
            "tested", message(), message_service_pb2.Submission(task_id="elsewhere-1")
        )


@pytest.mark.parametrize("direct_replies", [False, True])
async def test_a_first_attempt_with_the_id_of_an_earlier_host_has_its_task(
    open_host: OpenHost, direct_replies: bool
) -> None:
    """The commit finds it: the store is not asked before."""
    host = await open_host(define(quiet, direct_replies=direct_replies))
    own, foreign = (
        message_service_pb2.Submission(
            task_id=host.journal.new_task_id(), account=account, is_first_attempt=True
        )
        for account in ("ours", "theirs")
    )
    task_id = foreign.task_id = own.task_id
    await accept(host, message(), own)
    await host.wait_turn(task_id)
    await host.drain(1)
    await host.journal.close()
    host = await open_host(define(quiet, direct_replies=direct_replies))
    again = await accept(host, message(), own)
    assert (again.task_id, again.is_new) == (task_id, False)
    with pytest.raises(TaskNotFoundError):
        await host.submit("tested", message(), foreign)
    assert not host.open_turns


@pytest.mark.parametrize("direct_replies", [False, True])
async def test_a_task_id_of_another_account_looks_nonexistent(
    open_host: OpenHost, direct_replies: bool
) -> None:
    host = await open_host(define(quiet, direct_replies=direct_replies))
    task_id = f"{host.journal.id}-child00000000001"
    own = message_service_pb2.Submission(task_id=task_id, account="ours")
    foreign = message_service_pb2.Submission(task_id=task_id, account="theirs")
    async with asyncio.TaskGroup() as group:
        creation = group.create_task(accept(host, message(), own))
        await asyncio.sleep(0)
        # While the task is being created, and when it exists.
        with pytest.raises(TaskNotFoundError):
            await host.submit("tested", message(), foreign)
    assert creation.result().is_new
    with pytest.raises(TaskNotFoundError):
        await host.submit("tested", message(), foreign)


async def test_a_draining_host_refuses_new_tasks_and_finishes_running_ones(
    open_host: OpenHost,
) -> None:
    release, started = asyncio.Event(), asyncio.Event()

    async def slow(task: TaskContext) -> str:
        started.set()
        await release.wait()
        return "finished"

    host = await open_host(define(slow))
    task_id = (await accept(host, message())).task_id
    await started.wait()
    async with asyncio.TaskGroup() as group:
        group.create_task(host.drain(30))
        await asyncio.sleep(0)
        with pytest.raises(PeerUnavailableError, match="shutting down"):
            await host.submit("tested", message(), NOTHING)
        release.set()
    snapshot = await host.snapshot(task_id, account="")
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED


async def test_a_task_that_outlasts_the_drain_fails_with_the_reason(open_host: OpenHost) -> None:
    started = asyncio.Event()

    async def endless(task: TaskContext) -> None:
        started.set()
        await asyncio.Event().wait()

    host = await open_host(define(endless))
    task_id = (await accept(host, message())).task_id
    await started.wait()
    await host.drain(0)
    snapshot = await host.snapshot(task_id, account="")
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    assert "shut down" in status_texts(snapshot)


@pytest.mark.parametrize("is_delivery", [False, True])
async def test_a_repetition_after_a_takeover_does_not_run_the_agent_again(
    tmp_path: Path, is_delivery: bool
) -> None:
    runs = 0

    async def count_runs(task: TaskContext) -> str:
        nonlocal runs
        runs += 1
        return "done"

    agent = define(count_runs, direct_replies=not is_delivery)
    submission = message_service_pb2.Submission(account="ours")
    envelope = envelope_pb2.Envelope(envelope_id="e-1", type="user_message")
    for _ in range(2):
        journal = open_journal(tmp_path / "journal.db")
        async with TaskHost(journal, [agent]) as host:
            submission.task_id = submission.task_id or journal.new_task_id()
            if is_delivery:
                await (await host.deliver("tested", envelope, submission))
            else:
                await host.submit("tested", message(), submission)
                await host.wait_turn(submission.task_id)
        await journal.close()
    assert runs == 1
