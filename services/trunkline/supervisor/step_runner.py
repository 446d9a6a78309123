"""Runs a step of a plan: calls the agent as a child of the turn."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.agents.calls.child import ChildLimits, ChildTask
from trunkline.agents.calls.child_call import allocate_child, call_child
from trunkline.agents.calls.outcome import Outcome, clip, failed_outcome
from trunkline.core.redaction import redact_addresses
from trunkline.errors import TrunklineError
from trunkline.mesh.client import Directory
from trunkline.observe import telemetry
from trunkline.supervisor.planning import Planner
from trunkline.supervisor.roster import Roster
from trunkline.supervisor.steps import Step
from trunkline.tasks import approvals
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import event_pb2, message_pb2

if TYPE_CHECKING:
    from trunkline.supervisor.planner_memory import PlannerMemory


@dataclass(frozen=True, slots=True)
class SupervisorTurn:
    """The context of one turn, which all nodes of the graph share."""

    task: TurnRuntime
    directory: Directory
    roster: Roster
    plan: PlanWriter
    limits: ChildLimits
    planner: Planner
    memory: "PlannerMemory | None" = None
    """The conversation, for the planner."""


async def run_step(turn: SupervisorTurn, step: Step, text: str, *, shares: int) -> Outcome:
    """Have the agent of a step answer a text. Errors of the call are its outcome.

    The child gets one of `shares` equal parts of what remains of the limits.
    """
    child_id = get_child(step)
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


def get_child(step: Step) -> str:
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
