"""The steps of a plan run at the same time, each behind the steps that it comes after."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from langgraph.runtime import Runtime

from harness.agents.plans import Plan, build_steps, plans
from harness.examples import share
from trunkline.agents.calls.agent_call import AgentCall
from trunkline.agents.calls.outcome import Outcome
from trunkline.errors import JournalUnavailableError
from trunkline.supervisor.plan_run import run_steps
from trunkline.supervisor.steps import Step
from trunkline.tasks.lifecycle import State
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2

if TYPE_CHECKING:
    from trunkline.supervisor.turn import SupervisorTurn


class Agents:
    """Takes the place of calls of agents. Calls of `held` steps wait for their event.

    A call that is canceled cancels its child, which ends once `may_cancel` is set.
    """

    def __init__(self, held: Mapping[str, asyncio.Event] | None = None) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue(100)
        self.news: asyncio.Queue[str] = asyncio.Queue(100)
        self.ended: list[str] = []
        self.canceling: asyncio.Queue[str] = asyncio.Queue(100)
        self.canceled: list[str] = []
        self.texts: dict[str, str] = {}
        self.shares: dict[str, int] = {}
        self.error: Exception | None = None
        self.may_cancel = asyncio.Event()
        self._held = held or {}

    async def start(self, agent: str, *, step_id: str, shares: int) -> snapshot_pb2.ChildInfo:
        self.shares[step_id] = shares
        started = event_pb2.ChildStarted(task_id=step_id, agent=agent, step_id=step_id)
        return snapshot_pb2.ChildInfo(started=started)

    async def make(self, call: AgentCall) -> Outcome:
        step_id = call.child_id
        self.texts[step_id] = call.message.parts[0].text
        self.begun.put_nowait(step_id)
        if step_id in self._held:
            try:
                await self._held[step_id].wait()
            except asyncio.CancelledError:
                # A second cancellation would interrupt this.
                self.canceling.put_nowait(step_id)
                await self.may_cancel.wait()
                self.canceled.append(step_id)
                raise
        elif self.error is not None:
            raise self.error
        self.ended.append(step_id)
        self.news.put_nowait(step_id)
        text = f"x = {step_id.removeprefix('step-')}"
        return Outcome(call.agent, State.TASK_STATE_COMPLETED, text=text)


async def run(
    steps: Sequence[Step], agents: Agents, outcomes: Mapping[str, Outcome] | None = None
) -> Mapping[str, Outcome]:
    task = SimpleNamespace(turn=1, attempt=1, context_id="c", message=message_pb2.Message())
    turn = cast("SupervisorTurn", SimpleNamespace(task=task, calls=agents))
    state = await run_steps(
        {"steps": tuple(steps), "outcomes": outcomes or {}}, Runtime(context=turn)
    )
    return state["outcomes"]


@given(plans())
@share(0.4)
def test_all_steps_of_any_plan_run_once_behind_what_they_need(steps: list[Step]) -> None:
    agents = Agents()

    ended = asyncio.run(run(steps, agents))

    assert sorted(agents.ended) == sorted(ended) == sorted(step.id for step in steps)
    for step in steps:
        for earlier in step.after:
            assert agents.ended.index(earlier) < agents.ended.index(step.id)
        numbers = [earlier.removeprefix("step-") for earlier in step.after]
        expected = " ".join(numbers) if len(numbers) > 1 else "".join(f"x = {n}" for n in numbers)
        assert agents.texts[step.id] == (expected or "begin")
    assert sorted(agents.shares.values()) == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
    ("plan", "slow", "ended"),
    [
        ([(), ()], 1, [2]),
        ([(), (1,), (), (3,)], 1, [3, 4]),
        ([(), (1,), (1,), (3,), ()], 2, [1, 3, 4, 5]),
        ([(), (), (1, 2), (3,), (3,)], 4, [1, 2, 3, 5]),
        # The order is not nested: step 4 waits for step 2 alone.
        ([(), (), (1, 2), (2,)], 1, [2, 4]),
    ],
)
async def test_a_step_waits_for_those_that_it_needs_and_for_no_others(
    plan: Plan, slow: int, ended: list[int]
) -> None:
    release = asyncio.Event()
    agents = Agents({f"step-{slow}": release})

    async with asyncio.TaskGroup() as group:
        group.create_task(run(build_steps(plan), agents))
        async with asyncio.timeout(10):
            first = [await agents.news.get() for _ in ended]
        assert sorted(first) == [f"step-{each}" for each in ended]
        release.set()

    assert len(agents.ended) == len(plan)


async def test_a_step_without_the_results_that_it_needs_fails_or_waits_with_them() -> None:
    outcomes = {
        "step-1": Outcome("math", State.TASK_STATE_FAILED, text="no"),
        "step-2": Outcome("math", State.TASK_STATE_INPUT_REQUIRED, text="which one?"),
    }
    agents = Agents()

    ended = await run(build_steps([(), (), (1,), (2,)]), agents, outcomes)

    assert agents.ended == []
    assert ended["step-3"].text == "the result that it needs is missing"
    assert ended["step-4"].is_waiting


async def test_an_error_of_the_journal_cancels_the_other_steps_and_ends_the_turn() -> None:
    agents = Agents({"step-1": asyncio.Event(), "step-2": asyncio.Event()})
    agents.error = JournalUnavailableError("journal", "the disk is full")
    agents.may_cancel.set()

    with pytest.raises(JournalUnavailableError, match="the disk is full"):
        await run(build_steps([(), (), (), (1,)]), agents)

    assert sorted(agents.canceled) == ["step-1", "step-2"]
    assert agents.ended == []


async def test_a_second_cancellation_does_not_interrupt_the_cancellation_of_the_steps() -> None:
    agents = Agents({"step-1": asyncio.Event(), "step-2": asyncio.Event()})

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(run(build_steps([(), (), (1,)]), agents))
        for _ in range(2):
            await agents.begun.get()
        running.cancel()
        for _ in range(2):
            await agents.canceling.get()
        running.cancel()
        # The node gets the second cancellation before the children end.
        await asyncio.sleep(0)
        agents.may_cancel.set()

    assert running.cancelled()
    assert sorted(agents.canceled) == ["step-1", "step-2"]
    assert agents.ended == []
