"""Recovery of tasks after the death of their host."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.agents.inline_agents import (
    OpenHost,
    define,
    message,
    start,
    status_texts,
    texts,
)
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from harness.mesh.recorded_spans import spans_in
from harness.polling import wait_for
from trunkline.agents import FunctionAgent
from trunkline.core.json_values import read_member
from trunkline.errors import InvalidAgentResponseError, TaskNotFoundError
from trunkline.observe import telemetry
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.recovery import ATTEMPT_LIMIT
from trunkline.tasks.rewind import ATTEMPT_KEY, PLANNED_STOP_KEY
from trunkline.tasks.submission import SubmitResult, build_task_created
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2, message_service_pb2

TURN = "invoke_agent tested"


async def run_until_killed(
    path: Path, agent: FunctionAgent, reached: asyncio.Event, **fields: Any
) -> str:
    """Run the agent to a point, and let its host die there."""
    host = TaskHost(open_journal(path), [agent])
    await host.__aenter__()
    submission = message_service_pb2.Submission(**fields)
    accepted = await host.submit("tested", message(), submission)
    assert isinstance(accepted, SubmitResult)
    async with asyncio.timeout(30):
        await reached.wait()
    await host.journal.wait(accepted.task_id, 0)
    await kill_host(host)
    return accepted.task_id


async def test_a_resumable_agent_continues_from_its_artifacts(
    journal_path: Path, open_host: OpenHost
) -> None:
    reached = asyncio.Event()

    async def long(task: TaskContext) -> None:
        answer, notes = task.artifact("answer"), task.artifact("notes")
        if task.attempt == 1:
            await answer.append("0123456789")
            await notes.append("scribbled", last=True)
            async with task.tool("math/calculate"):
                await get_turn_runtime(task).record(
                    event_pb2.Event(child_started=event_pb2.ChildStarted(task_id="c-1"))
                )
                reached.set()
                await asyncio.Event().wait()
        await task.rewind({answer.id: 4})
        await task.artifact(id=answer.id).append("!", last=True)
        await task.artifact(id=notes.id).append("again", last=True)

    agent = define(long, resumable=True)
    task_id = await run_until_killed(journal_path, agent, reached)
    host = await open_host(agent)
    ended = await host.wait_turn(task_id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == ["0123!", "again"]
    assert [artifact.artifact_id for artifact in ended.task.artifacts] == [
        "artifact-1",
        "artifact-2",
    ]
    assert all(info.closed for info in ended.artifacts)
    (call,) = ended.tool_calls
    assert call.finished.is_error
    assert "host stopped" in call.finished.summary
    assert read_member(ended.task.metadata, ATTEMPT_KEY) == 2


async def test_a_later_turn_that_runs_again_stays_in_the_trace_of_its_request(
    journal_path: Path, open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    async def asking(task: TaskContext) -> str | None:
        if task.turn == 1:
            await task.require_input("which colour?")
            return None
        if task.attempt == 1:
            await task.artifact().append("lost")
            reached.set()
            await asyncio.Event().wait()
        return "blue"

    agent = define(asking, repeatable=True)
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        host = TaskHost(open_journal(journal_path), [agent])
        await host.__aenter__()
        submission = message_service_pb2.Submission()
        with telemetry.span("first"):
            accepted = await host.submit("tested", message(), submission)
        assert isinstance(accepted, SubmitResult)
        await host.wait_turn(accepted.task_id)
        with telemetry.span("second"):
            answer = message("blue", task_id=accepted.task_id)
            await host.submit("tested", answer, submission)
        async with asyncio.timeout(30):
            await reached.wait()
        await kill_host(host)
        ended = await (await open_host(agent)).wait_turn(accepted.task_id)
        assert texts(ended) == ["blue"]
        # The last span ends after the turn.
        await wait_for(lambda: [s.name for s in memory.get_finished_spans()].count(TURN) == 3)
        spans = memory.get_finished_spans()
    trace_ids = {span.name: span.context.trace_id for span in spans}
    attempts = [span.context.trace_id for span in spans if span.name == TURN]
    assert attempts == [trace_ids["first"], trace_ids["second"], trace_ids["second"]]


async def test_children_of_a_repeated_turn_are_canceled_first(
    journal_path: Path, open_host: OpenHost
) -> None:
    reached = asyncio.Event()
    canceled: list[str] = []

    async def cancel_child(task_id: str, account: str) -> None:
        canceled.append(task_id)
        if task_id == "c-2":
            raise TaskNotFoundError(task_id)

    async def parent(task: TaskContext) -> str:
        if task.attempt == 1:
            for child in ("c-1", "c-2"):
                started = event_pb2.ChildStarted(task_id=child, agent="math")
                await get_turn_runtime(task).record(event_pb2.Event(child_started=started))
            reached.set()
            await asyncio.Event().wait()
        return " ".join(sorted(canceled))

    agent = define(parent, repeatable=True)
    task_id = await run_until_killed(journal_path, agent, reached)
    host = await open_host(agent, cancel_child=cancel_child)
    ended = await host.wait_turn(task_id)
    assert texts(ended) == ["c-1 c-2"]
    assert ended.children[0].finished.state == State.TASK_STATE_CANCELED


@pytest.mark.parametrize(
    ("reports_working", "concurrency", "expected_attempts"),
    # For a task that may have waited, the first attempt doesn't count: it may not have run.
    [(True, None, [1, 2, 3]), (False, None, [1, 2, 3]), (False, 1, [1, 1, 2, 3])],
    ids=["working", "silently", "silently, with a limit"],
)
async def test_a_task_that_always_kills_its_host_fails_after_three_attempts(
    journal_path: Path,
    open_host: OpenHost,
    reports_working: bool,
    concurrency: int | None,
    expected_attempts: list[int],
) -> None:
    attempts: list[int] = []
    reached = asyncio.Event()

    async def poison(task: TaskContext) -> None:
        attempts.append(task.attempt)
        if reports_working:
            await task.working()
        reached.set()
        await asyncio.Event().wait()

    agent = define(poison, repeatable=True, concurrency=concurrency)
    task_id = await run_until_killed(journal_path, agent, reached)
    for _ in expected_attempts[1:]:
        reached.clear()
        host = TaskHost(open_journal(journal_path), [agent])
        await host.__aenter__()
        async with asyncio.timeout(30):
            await reached.wait()
        await kill_host(host)
    last = await open_host(agent)
    ended = await last.wait_turn(task_id)
    assert attempts == expected_attempts
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "stopped 3 times" in status_texts(ended)


async def test_a_deadline_that_passed_while_no_host_ran_ends_the_task(
    journal_path: Path, open_host: OpenHost
) -> None:
    executed: list[str] = []

    async def late(task: TaskContext) -> None:
        executed.append(task.id)

    journal = open_journal(journal_path)
    task_id = journal.new_task_id()
    submission = message_service_pb2.Submission()
    submission.deadline.GetCurrentTime()
    created = build_task_created("tested", task_id, message(), submission)
    await journal.create(task_id, event_pb2.Event(created=created))
    await journal.close()
    host = await open_host(define(late, repeatable=True))
    ended = await host.wait_turn(task_id)
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "deadline" in status_texts(ended)
    assert not executed


async def test_a_host_that_shuts_down_leaves_a_repeatable_turn_to_the_next_one(
    journal_path: Path, open_host: OpenHost
) -> None:
    started = asyncio.Event()
    is_last = False

    async def count(task: TaskContext) -> None:
        numbers = task.artifact()
        await numbers.append("one ")
        if not is_last:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # Neither what it writes now nor its return counts.
                with pytest.raises(InvalidAgentResponseError):
                    await numbers.append("lost")
                return
        await numbers.append("two", last=True)

    agent = define(count, repeatable=True)
    host = TaskHost(open_journal(journal_path), [agent])
    await host.__aenter__()
    task_id = await start(host)
    await started.wait()
    await host.drain(0)
    await kill_host(host)
    for _ in range(ATTEMPT_LIMIT):
        # Planned stops use up no attempts.
        started.clear()
        host = TaskHost(open_journal(journal_path), [agent])
        await host.__aenter__()
        await started.wait()
        await host.drain(0)
        await kill_host(host)
    is_last = True
    ended = await (await open_host(agent)).wait_turn(task_id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == ["one two"]
    assert read_member(ended.task.metadata, PLANNED_STOP_KEY) is True
