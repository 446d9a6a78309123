"""Runs the steps of a plan: all at the same time, each behind the steps that it comes after."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from trunkline.agents.calls.outcome import Outcome, failed_outcome
from trunkline.supervisor.steps import Step, fill_references
from trunkline.tasks.lifecycle import State

_T = TypeVar("_T")
Ask: TypeAlias = Callable[[Step, str, int], Awaitable[Outcome]]
"""Has the agent of a step answer a text, with one of a number of equal shares of the limits."""


class PlanRun:
    """One run of a plan: the steps that had no outcome, and the outcomes so far.

    A step that fails, or whose agent has a question, stops no other step, except the steps that
    need its result.
    """

    def __init__(self, ask: Ask, steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> None:
        """`steps` have no circles: a step comes after steps that don't come after it."""
        self._ask = ask
        self._outcomes = dict(outcomes)
        self.steps = [step for step in steps if step.id not in outcomes]
        """The steps to run."""
        self._ended = {step.id: asyncio.Event() for step in self.steps}
        # The steps that need a share of the limits per tree of tasks.
        self._uncalled_ids = {step.id for step in self.steps if not step.started_child_id}

    async def run(self, step: Step) -> Outcome:
        """Wait for the steps before a step, run it, and return its outcome.

        Errors of children are outcomes.
        """
        for earlier in step.after:
            if earlier in self._ended:
                await self._ended[earlier].wait()
        outcome = await _cancel_once(self._run(step))
        self._outcomes[step.id] = outcome
        self._ended[step.id].set()
        return outcome

    async def _run(self, step: Step) -> Outcome:
        if not step.agent:
            return failed_outcome("", "no agent here fits it")
        needed = {earlier: self._outcomes[earlier] for earlier in step.needed_steps}
        ended = [each for each in needed.values() if not each.is_waiting]
        if not all(each.is_answer and each.text for each in ended):
            return failed_outcome(step.agent, "the result that it needs is missing")
        if len(ended) < len(needed):
            # Postponed until those steps complete: see trunkline.supervisor.recovery.
            return Outcome(step.agent, State.TASK_STATE_INPUT_REQUIRED)
        text = fill_references(step.text, {name: each.text for name, each in needed.items()})
        shares = max(1, len(self._uncalled_ids))
        self._uncalled_ids.discard(step.id)
        return await self._ask(step, text, shares)


async def _cancel_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Do work that is canceled once at most.

    If one of several nodes fails, LangGraph cancels the others twice. The second time would
    interrupt the cancellation of the child; a task group passes on only the first.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return task.result()
