"""Runs the steps of a plan, independent ones concurrently. A failed step stops no other."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind

from trunkline import telemetry
from trunkline.client import Directory, allocate_task_id
from trunkline.errors import TrunklineError
from trunkline.redaction import redact_addresses
from trunkline.supervisor.child import ChildLimits, ChildTask
from trunkline.supervisor.references import fill_references
from trunkline.supervisor.router import Router
from trunkline.supervisor.steps import Outcome, Step, clip, failed_outcome
from trunkline.tasks import approvals
from trunkline.tasks.lifecycle import State, state_name
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import event_pb2, message_pb2

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

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


async def run_steps(
    turn: SupervisorTurn, steps: Sequence[Step], earlier_outcomes: Mapping[str, Outcome]
) -> dict[str, Outcome]:
    """Run the steps without an outcome, and return the outcomes of all."""
    outcomes = dict(earlier_outcomes)
    end_events = {step.id: asyncio.Event() for step in steps}
    # The steps that need a share of the limits per tree of tasks.
    uncalled_ids = {step.id for step in steps if step.id not in outcomes and not _get_child(step)}

    async def run(step: Step) -> None:
        try:
            for earlier in step.after:
                if earlier in end_events:
                    await end_events[earlier].wait()
            shares = max(1, len(uncalled_ids))
            uncalled_ids.discard(step.id)
            outcomes[step.id] = await _run_step(turn, step, outcomes, shares=shares)
        finally:
            end_events[step.id].set()

    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                if step.id in outcomes:
                    end_events[step.id].set()
                else:
                    group.create_task(run(step))
    except ExceptionGroup as errors:
        # Steps catch the errors of children, so the journal is lost or there is a defect.
        raise errors.exceptions[0] from errors
    return outcomes


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
    try:
        child_id = _get_child(step)
        start = None
        if not child_id:
            child_id = allocate_task_id(turn.directory.get_agent_host(step.agent))
            budget = turn.task.tree.reserve(child_id, step.agent, shares=shares)
            start = event_pb2.ChildStarted(
                task_id=child_id, agent=step.agent, step_id=step.id, budget=budget
            )
    except TrunklineError as error:
        return failed_outcome(step.agent, str(redact_addresses(error)))
    if start is not None:
        await turn.task.record(event_pb2.Event(child_started=start))
    return await _call_child(turn, step, text, child_id)


def _get_child(step: Step) -> str:
    """Return the child that was started for a step before, or ""."""
    return step.child_id or step.called_child_id


async def _call_child(turn: SupervisorTurn, step: Step, text: str, child_id: str) -> Outcome:
    """Call the child, and record its end in the journal."""
    task = turn.task
    attributes: dict[str, AttributeValue] = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.INVOKE_AGENT,
        telemetry.GEN_AI_AGENT_NAME: step.agent,
        telemetry.GEN_AI_CONVERSATION_ID: task.context_id,
        telemetry.TASK_ID: child_id,
        telemetry.PARENT_TASK_ID: task.id,
        telemetry.ROUTE_AGENT: step.agent,
        telemetry.ROUTE_CONFIDENCE: step.route.confidence,
    }
    name = f"{telemetry.INVOKE_AGENT} {step.agent}"
    with telemetry.span(name, kind=SpanKind.CLIENT, attributes=attributes) as span:
        shown_text = clip(text) or _render_approval_answers(step) or step.plan_text
        async with task.tool(step.agent, {"message": shown_text}) as call:
            child = ChildTask(
                task, turn.directory, agent=step.agent, task_id=child_id, limits=turn.limits
            )
            try:
                message = _build_message(turn, step, text, child_id)
                is_retry = bool(step.called_child_id or (step.child_id and task.attempt > 1))
                outcome = await child.run(message, is_retry=is_retry)
            except asyncio.CancelledError:
                call.summary = f"{step.agent}: canceled"
                canceled = Outcome(step.agent, State.TASK_STATE_CANCELED, usage=child.usage)
                await task.record(_build_finished_event(step, child_id, canceled))
                raise
            except TrunklineError as error:
                outcome = failed_outcome(
                    step.agent, str(redact_addresses(error)), child_id=child_id, usage=child.usage
                )
                telemetry.mark_error(span, error)
            else:
                if outcome.is_failure:
                    telemetry.mark_error(span, state_name(outcome.state))
            call.is_error = outcome.is_failure
            call.summary = f"{step.agent}: {state_name(outcome.state)}"
    # The text of an answer is in its artifacts, unless it came as a status or a direct reply.
    status_text = outcome.text if outcome.is_status_text or not outcome.is_answer else ""
    await task.record(_build_finished_event(step, child_id, outcome, status_text))
    return outcome


def _build_finished_event(
    step: Step, child_id: str, outcome: Outcome, text: str = ""
) -> event_pb2.Event:
    end = event_pb2.ChildFinished(
        task_id=child_id,
        agent=step.agent,
        state=outcome.state,
        text=text,
        usage=outcome.usage,
        partial=outcome.is_partial,
    )
    return event_pb2.Event(child_finished=end)


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
