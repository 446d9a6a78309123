"""Runs a plan as a workflow. Importing this module loads LangGraph."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from trunkline.calls.outcome import Outcome, failed_outcome
from trunkline.supervisor.plan_workflow import build_plan_workflow
from trunkline.supervisor.references import format_node_id
from trunkline.supervisor.step_runner import SupervisorTurn, get_child, run_step
from trunkline.supervisor.steps import Step
from trunkline.tasks.lifecycle import State, state_name
from trunkline.v1 import event_pb2
from trunkline.workflows.compiler import Branch, WorkflowState, compile_branches
from trunkline.workflows.definition import AgentNode, Node
from trunkline.workflows.expressions import Template
from trunkline.workflows.nodes import NodeRun, Result

_T = TypeVar("_T")


class PlanRun(NodeRun):
    """One run of a plan: the steps that had no outcome, and the outcomes so far.

    The nodes of its workflow are its steps. A step that fails, or whose agent has a question,
    stops no other, except those that need its result.
    """

    def __init__(
        self, turn: SupervisorTurn, steps: Sequence[Step], outcomes: Mapping[str, Outcome]
    ) -> None:
        self._turn = turn
        self._outcomes = dict(outcomes)
        remaining = [step for step in steps if step.id not in outcomes]
        self._steps = {format_node_id(step.id): step for step in remaining}
        # The steps that need a share of the limits per tree of tasks.
        self._uncalled_ids = {step.id for step in remaining if not get_child(step)}
        self._nodes: dict[str, Node] = {}
        self.branches: Sequence[Branch] = ()
        """The branches of the plan, which run at the same time."""
        if remaining:
            self._nodes = {node.id: node for node in build_plan_workflow(remaining).nodes}
            self.branches = _compile(tuple((step.id, step.after) for step in remaining))

    async def run_branch(self, branch: Branch) -> Mapping[str, Outcome]:
        """Run the steps of a branch; return their outcomes.

        Steps catch the errors of children. Any other error cancels the steps beside it.
        """
        state: WorkflowState = {
            "nodes": {
                format_node_id(step_id): _to_result(outcome).to_json(format_node_id(step_id))
                for step_id, outcome in self._outcomes.items()
            }
        }
        await _cancel_once(branch.run(state, self))
        ids = [self._steps[node].id for node in branch.nodes if node in self._steps]
        return {step_id: self._outcomes[step_id] for step_id in ids}

    async def run_node(self, node: Node, variables: Mapping[str, Any]) -> Result:
        """Run the step of a node. Other nodes have nothing to do."""
        step, own_node = self._steps.get(node.id), self._nodes[node.id]
        if step is None or not isinstance(own_node, AgentNode):
            return Result()
        message = str(own_node.message)
        outcome = await _cancel_once(self._run_step(step, message, variables))
        self._outcomes[step.id] = outcome
        return _to_result(outcome)

    async def wait_while_paused(self) -> None:
        """Do nothing: only workflows can be paused."""

    async def start_step(self, node: str) -> None:
        """Do nothing: the journal has the start of the step's child."""

    async def finish_step(
        self, node: str, label: str, *, is_error: bool = False, text: str = ""
    ) -> None:
        """Do nothing: the journal has the end of the step's child."""

    async def _run_step(self, step: Step, message: str, variables: Mapping[str, Any]) -> Outcome:
        if not step.agent:
            return failed_outcome("", "no agent here fits it")
        needed = [self._outcomes[earlier] for earlier in step.needed_steps]
        if any(not each.is_waiting and not (each.is_answer and each.text) for each in needed):
            return failed_outcome(step.agent, "the result that it needs is missing")
        if any(each.is_waiting for each in needed):
            # Postponed until those steps complete: see trunkline.supervisor.recovery.
            return Outcome(step.agent, State.TASK_STATE_INPUT_REQUIRED)
        text = str(Template.parse(message).render(variables)) if "${" in message else message
        shares = max(1, len(self._uncalled_ids))
        self._uncalled_ids.discard(step.id)
        return await run_step(self._turn, step, text, shares=shares)


def _to_result(outcome: Outcome) -> Result:
    # The text of a failure is never read.
    return Result(outcome.text.strip(), state=state_name(outcome.state))


@lru_cache(maxsize=128)
def _compile(shape: tuple[tuple[str, tuple[str, ...]], ...]) -> Sequence[Branch]:
    """Compile the plans whose steps have these ids, each with the ids of the steps before it.

    The graphs hold no texts: a run knows its own.
    """
    steps = [Step(step_id, "", event_pb2.RouteDecided(), after) for step_id, after in shape]
    return compile_branches(build_plan_workflow(steps))


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
