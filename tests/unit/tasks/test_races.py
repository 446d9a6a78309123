"""Concurrent ends of a task have one outcome, and every observer sees it."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from harness.agents.inline_agents import NOTHING, OpenHost, define, message
from harness.journal.host_death import wait_until_slots_free
from trunkline.errors import (
    TaskEndedError,
    TaskNotCancelableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import TERMINAL, State, state_name
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import event_pb2

ENDS = ("complete", "fail", "reject", "require_input", "return", "raise", "stay")
RACES = 300


async def yield_loop(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def racer(task: TaskContext) -> str | None:
    """Follow the script in the message: some loop iterations, an end, and more iterations."""
    before, end_, after = task.text.split()
    artifact = task.artifact()
    for _ in range(int(before)):
        await artifact.append("x")
        await asyncio.sleep(0)
    if end_ == "raise":
        raise ValueError
    if end_ == "return":
        return "returned"
    if end_ == "stay":
        await asyncio.Event().wait()
    await getattr(task, end_)()
    await yield_loop(int(after))
    return None


async def outcome_for_reader(host: TaskHost, task_id: str) -> list[State.ValueType]:
    """Read the journal to its end as a subscriber; return the states."""
    states: list[State.ValueType] = []
    async for batches in await host.watch(task_id, account="", after=0):
        for sealed in batches:
            events = event_pb2.EventBatch.FromString(sealed).events
            states += [event.status.status.state for event in events if event.HasField("status")]
    return states


async def cancel_after(host: TaskHost, task_id: str, times: int) -> State.ValueType:
    """Cancel after some iterations of the loop; return the state that the caller gets."""
    await yield_loop(times)
    try:
        return (await host.cancel(task_id, account="")).task.status.state
    except TaskNotCancelableError as error:
        return State.Value(f"TASK_STATE_{error.state.upper()}")


async def answer_after(host: TaskHost, task_id: str, times: int, text: str) -> bool:
    """Send the next message; return True if it was accepted."""
    await yield_loop(times)
    try:
        await host.submit("tested", message(text, message_id="m-2", task_id=task_id), NOTHING)
    except (TaskEndedError, UnsupportedOperationError):
        return False
    return True


async def race(host: TaskHost, dice: random.Random) -> str:
    """Run one race; return the final state."""

    def script() -> str:
        return f"{dice.randrange(4)} {dice.choice(ENDS)} {dice.randrange(4)}"

    accepted = await host.submit("tested", message(script()), NOTHING)
    assert isinstance(accepted, SubmitResult)
    task_id = accepted.task_id
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        reader = group.create_task(outcome_for_reader(host, task_id))
        cancels = [
            group.create_task(cancel_after(host, task_id, dice.randrange(14)))
            for _ in range(dice.randrange(1, 3))
        ]
        answers: list[asyncio.Task[Any]] = [
            group.create_task(answer_after(host, task_id, dice.randrange(14), script()))
            for _ in range(dice.randrange(3))
        ]
        if dice.random() < 0.3:
            await yield_loop(dice.randrange(14))
            host.journals.primary.deadlines.add(task_id, datetime.now(UTC))
    assert len(answers) >= sum(answer.result() for answer in answers)
    states = reader.result()
    final = (await host.snapshot(task_id, account="")).task.status.state
    assert [state for state in states if state in TERMINAL] == [final] == states[-1:]
    assert {cancel.result() for cancel in cancels} == {final}
    return state_name(final)


async def test_every_race_has_one_outcome_for_all_observers(open_host: OpenHost) -> None:
    dice = random.Random(1)
    host = await open_host(define(racer))
    outcomes: Counter[str] = Counter()
    for _ in range(RACES // 10):
        async with asyncio.TaskGroup() as group:
            races = [group.create_task(race(host, dice)) for _ in range(10)]
        outcomes.update(task.result() for task in races)
    await wait_until_slots_free(host)
    assert {"canceled", "completed", "failed", "rejected"} <= set(outcomes)


async def test_an_abandoned_call_leaves_a_consistent_task(open_host: OpenHost) -> None:
    dice = random.Random(3)

    async def ask(task: TaskContext) -> str | None:
        if task.turn == 1:
            await task.require_input("?")
            return None
        return "done"

    host = await open_host(define(ask))
    for _ in range(30):
        task_id = host.journal.new_task_id()
        first = NOTHING.__class__(task_id=task_id)
        await call_and_abandon(host.submit("tested", message(), first), dice.randrange(1, 6))
        snapshot = await wait_until_settled(host, task_id)
        if snapshot is None:
            continue
        answer = message("yes", message_id="m-2", task_id=task_id)
        await call_and_abandon(host.submit("tested", answer, NOTHING), dice.randrange(1, 6))
        await wait_until_slots_free(host)
        row = await host.journal.row(task_id)
        assert row.state in (State.TASK_STATE_INPUT_REQUIRED, State.TASK_STATE_COMPLETED)
        await call_and_abandon(host.cancel(task_id, account=""), dice.randrange(1, 6))
        await wait_until_slots_free(host)
        assert (await host.journal.row(task_id)).state in (
            State.TASK_STATE_INPUT_REQUIRED,
            *TERMINAL,
        )


async def call_and_abandon(call: Any, times: int) -> None:
    """Start a call, and cancel it after some iterations of the loop."""
    async with asyncio.TaskGroup() as group:
        call_task = group.create_task(ignore_errors(call))
        await yield_loop(times)
        call_task.cancel()


async def ignore_errors(call: Any) -> None:
    try:
        await call
    except TrunklineError:
        return


async def wait_until_settled(host: TaskHost, task_id: str) -> Any:
    """Return the task once no code works on it; None if it was never created."""
    await wait_until_slots_free(host)
    try:
        return await host.wait_turn(task_id)
    except TrunklineError:
        return None
