"""Runs the steps of a plan. A failed step stops no other."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline import telemetry
from trunkline.calls.child import ChildLimits, ChildTask
from trunkline.calls.child_call import allocate_child, call_child
from trunkline.calls.outcome import Outcome, clip, failed_outcome
from trunkline.client import Directory
from trunkline.errors import TrunklineError
from trunkline.redaction import redact_addresses
from trunkline.supervisor.references import fill_references
from trunkline.supervisor.router import Router
from trunkline.supervisor.steps import Step
from trunkline.tasks import approvals
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import event_pb2, message_pb2

if TYPE_CHECKING:
    from trunkline.supervisor.planner import Planner
    from trunkline.supervisor.planner_memory import PlannerMemory


@dataclass(frozen=True, slots=True)
class SupervisorTurn:
    """The context of one turn, which all nodes of the graph share."""

    task: TurnRuntime
    directory: Directory
    router: Router
    plan: PlanWriter
    limits: ChildLimits
    planner: "Planner | None" = None
    """The model that plans and merges answers; None: plan by scores, keep the agents' words."""
    memory: "PlannerMemory | None" = None
    """The conversation, for the planner."""


class PlanRun:
    """One run of a plan: the steps that had no outcome, and the outcomes so far."""

    def __init__(self, steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> None:
        self.steps = [step for step in steps if step.id not in outcomes]
        """The steps to run, each once, all at the same time."""
        self._outcomes = dict(outcomes)
        self._end_events = {step.id: asyncio.Event() for step in self.steps}
        # The steps that need a share of the limits per tree of tasks.
        self._uncalled_ids = {step.id for step in self.steps if not _get_child(step)}

    async def run_step(self, turn: SupervisorTurn, step: Step) -> Outcome:
        """Run a step after those that it needs.

        Steps catch the errors of children. Any other error cancels the steps beside it.
        """
        # If one of several nodes fails, LangGraph cancels the others twice. The second time would
        # interrupt the cancellation of the child; a task group passes on only the first.
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._run_step(turn, step))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return work.result()

    async def _run_step(self, turn: SupervisorTurn, step: Step) -> Outcome:
        for earlier in step.after:
            if earlier in self._end_events:
                await self._end_events[earlier].wait()
        shares = max(1, len(self._uncalled_ids))
        self._uncalled_ids.discard(step.id)
        outcome = await _run_step(turn, step, self._outcomes, shares=shares)
        self._outcomes[step.id] = outcome
        self._end_events[step.id].set()
        return outcome


async def _run_step(
    turn: SupervisorTurn, step: Step, outcomes: Mapping[str, Outcome], *, shares: int
) -> Outcome:
    """Run a step. Its child gets one of `shares` equal parts of what remains of the limits."""
    if not step.agent:
        return failed_outcome("", "no agent here fits it")
    needed_outcomes = {earlier: outcomes[earlier] for earlier in step.needed_steps}
    if any(
        not outcome.is_waiting and not (outcome.is_answer and outcome.text)
        for outcome in needed_outcomes.values()
    ):
        return failed_outcome(step.agent, "the result that it needs is missing")
    if any(outcome.is_waiting for outcome in needed_outcomes.values()):
        # Postponed until those steps complete: see trunkline.supervisor.recovery.
        return Outcome(step.agent, State.TASK_STATE_INPUT_REQUIRED)
    text = fill_references(
        step.text, {name: outcome.text for name, outcome in needed_outcomes.items()}
    )
    child_id = _get_child(step)
    if not child_id:
        try:
            started = allocate_child(
                turn.task, turn.directory, step.agent, step_id=step.id, shares=shares
            )
        except TrunklineError as error:
            return failed_outcome(step.agent, str(redact_addresses(error)))
        await turn.task.record(event_pb2.Event(child_started=started))
        child_id = started.task_id
    return await _call_child(turn, step, text, child_id)


def _get_child(step: Step) -> str:
    """Return the child that was started for a step before, or ""."""
    return step.child_id or step.called_child_id


async def _call_child(turn: SupervisorTurn, step: Step, text: str, child_id: str) -> Outcome:
    """Call the child of a step with the step's text, or with answers to its approvals."""
    task = turn.task
    child = ChildTask(task, turn.directory, agent=step.agent, task_id=child_id, limits=turn.limits)
    return await call_child(
        task,
        child,
        _build_message(turn, step, text, child_id),
        shown_text=clip(text) or _render_approval_answers(step) or step.plan_text,
        is_retry=bool(step.called_child_id or (step.child_id and task.attempt > 1)),
        attributes={
            telemetry.ROUTE_AGENT: step.agent,
            telemetry.ROUTE_CONFIDENCE: step.route.confidence,
        },
    )


def _build_message(
    turn: SupervisorTurn, step: Step, text: str, child_id: str
) -> message_pb2.Message:
    """Build the child's message: the step's text and the request's other parts."""
    task = turn.task
    if step.answers:
        return approvals.build_answer_message(
            step.answers,
            message_id=f"{child_id}-{task.turn}",
            task_id=child_id,
            context_id=task.context_id,
        )
    message = message_pb2.Message(
        message_id=f"{child_id}-{task.turn}",
        context_id=task.context_id,
        task_id=step.child_id,
        role=message_pb2.ROLE_USER,
    )
    attachments = [
        part
        for part in task.message.parts
        if not part.HasField("text") and not approvals.is_approval_answer(part)
    ]
    # The child answers an empty message with examples of requests.
    if text or not attachments:
        message.parts.add(text=text)
    message.parts.extend(attachments)
    return message


def _render_approval_answers(step: Step) -> str:
    """Render the approval answers for a child on one line."""
    decisions = (
        f"{answer.approval_id}: {approvals.render_decision(answer.decision)}"
        for answer in step.answers
    )
    return ", ".join(decisions)
