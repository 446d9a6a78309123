"""The steps of a plan run at the same time, each behind the steps that it comes after."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given

from harness.agents.plans import Plan, build_steps, plans
from harness.examples import share
from trunkline.agents.calls.outcome import Outcome
from trunkline.supervisor.plan_run import PlanRun
from trunkline.supervisor.steps import Step
from trunkline.tasks.lifecycle import State


class Agents:
    """Takes the place of calls of agents. Calls of `held` steps wait for their event."""

    def __init__(self, held: Mapping[str, asyncio.Event] | None = None) -> None:
        self.news: asyncio.Queue[str] = asyncio.Queue(100)
        self.ended: list[str] = []
        self.texts: dict[str, str] = {}
        self.shares: dict[str, int] = {}
        self._held = held or {}

    async def answer(self, step: Step, text: str, shares: int) -> Outcome:
        self.texts[step.id] = text
        self.shares[step.id] = shares
        if step.id in self._held:
            await self._held[step.id].wait()
        self.ended.append(step.id)
        self.news.put_nowait(step.id)
        text = f"x = {step.id.removeprefix('step-')}"
        return Outcome(step.agent, State.TASK_STATE_COMPLETED, text=text)


async def run(
    steps: Sequence[Step], agents: Agents, outcomes: Mapping[str, Outcome] | None = None
) -> dict[str, Outcome]:
    plan = PlanRun(agents.answer, steps, outcomes or {})
    async with asyncio.TaskGroup() as group:
        running = {step.id: group.create_task(plan.run(step)) for step in plan.steps}
    return {name: task.result() for name, task in running.items()}


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
