"""The turn of a supervisor, and its calls of agents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.agents.calls.agent_call import AgentCall, AgentCalls
from trunkline.agents.calls.outcome import Outcome, clip, failed_outcome
from trunkline.errors import TrunklineError
from trunkline.mesh.client import Directory
from trunkline.observe import telemetry
from trunkline.supervisor.planning import Planner
from trunkline.supervisor.roster import Roster
from trunkline.supervisor.steps import Step
from trunkline.tasks import approvals
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import message_pb2

if TYPE_CHECKING:
    from trunkline.supervisor.planner_memory import PlannerMemory


@dataclass(frozen=True, slots=True)
class SupervisorTurn:
    """The context of one turn, which all nodes of the graph share."""

    task: TurnRuntime
    directory: Directory
    roster: Roster
    plan: PlanWriter
    calls: AgentCalls
    planner: Planner
    memory: "PlannerMemory | None" = None
    """The conversation, for a planner that reads it."""

    async def ask(self, step: Step, text: str, shares: int) -> Outcome:
        """Have the agent of a step answer a text. Errors of the call are its outcome.

        A new child gets one of `shares` equal parts of what remains of the limits.
        """
        child_id = step.started_child_id
        if not child_id:
            try:
                child = await self.calls.start(step.agent, step_id=step.id, shares=shares)
            except TrunklineError as error:
                return failed_outcome(step.agent, error)
            child_id = child.started.task_id
        call = AgentCall(
            step.agent,
            child_id,
            self._build_message(step, text, child_id),
            shown_text=clip(text) or _render_approval_answers(step) or step.plan_text,
            is_repeated=bool(step.called_child_id or (step.child_id and self.task.attempt > 1)),
            attributes={
                telemetry.ROUTE_AGENT: step.agent,
                telemetry.ROUTE_CONFIDENCE: step.route.confidence,
            },
        )
        return await self.calls.make(call)

    def _build_message(self, step: Step, text: str, child_id: str) -> message_pb2.Message:
        """Return the message for a child: the text of the step with the other parts of the request.

        Answers to approvals of the child replace both.
        """
        task = self.task
        if step.answers:
            return self.calls.build_answer(child_id, step.answers, turn=task.turn)
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
