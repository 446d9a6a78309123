"""Runs the steps of a plan: all at the same time, each behind the steps that it comes after.

Importing this module loads LangGraph.
"""

import asyncio
from collections.abc import Collection, Mapping

from langgraph.runtime import Runtime

from trunkline.agents.calls.agent_call import AgentCall
from trunkline.agents.calls.outcome import Outcome, clip, failed_outcome
from trunkline.errors import TrunklineError
from trunkline.observe import telemetry
from trunkline.supervisor.steps import Step, SupervisorState, fill_references
from trunkline.supervisor.turn import SupervisorTurn
from trunkline.tasks import approvals
from trunkline.tasks.lifecycle import State
from trunkline.v1 import message_pb2


async def run_steps(state: SupervisorState, runtime: Runtime[SupervisorTurn]) -> SupervisorState:
    """Run the steps that have no outcome, each as soon as the steps before it have ended.

    This is one node for all steps. With one node for each step, LangGraph would start the next
    steps only when all running ones have ended. A step that fails, or whose agent has a question,
    stops no other step, except the steps that need its result.
    """
    turn, outcomes = runtime.context, dict(state.get("outcomes", {}))
    steps = [step for step in state["steps"] if step.id not in outcomes]
    # The steps that need a share of the limits per request.
    uncalled_ids = {step.id for step in steps if not step.started_child_id}
    running: dict[str, asyncio.Task[None]] = {}

    async def run(step: Step) -> None:
        earlier = [running[step_id] for step_id in step.after if step_id in running]
        if earlier:
            # Unlike `await` of a task, the cancellation of `wait` cancels no earlier step.
            await asyncio.wait(earlier)
        outcomes[step.id] = await _run_step(turn, step, outcomes, uncalled_ids)

    try:
        # LangGraph may cancel a node twice. The group passes only the first cancellation on: the
        # second would interrupt the cancellation of the children.
        async with asyncio.TaskGroup() as group:
            for step in steps:
                running[step.id] = group.create_task(run(step))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return {"outcomes": outcomes}


async def _run_step(
    turn: SupervisorTurn, step: Step, outcomes: Mapping[str, Outcome], uncalled_ids: set[str]
) -> Outcome:
    """Have the agent of a step answer its text. Errors of the call are its outcome.

    A new child gets an equal share of what remains of the limits: there are as many shares as
    `uncalled_ids`. Then the step is removed from them.
    """
    needed = {earlier: outcomes[earlier] for earlier in step.needed_steps}
    if (obstacle := _find_obstacle(step, needed.values())) is not None:
        return obstacle
    text = fill_references(step.text, {step_id: each.text for step_id, each in needed.items()})
    shares = len(uncalled_ids)
    uncalled_ids.discard(step.id)
    child_id = step.started_child_id
    if not child_id:
        try:
            child = await turn.calls.start(step.agent, step_id=step.id, shares=shares)
        except TrunklineError as error:
            return failed_outcome(step.agent, error)
        child_id = child.started.task_id
    call = AgentCall(
        step.agent,
        child_id,
        _build_message(turn, step, text, child_id),
        shown_text=clip(text) or _render_approval_answers(step) or step.plan_text,
        is_repeated=bool(step.called_child_id or (step.child_id and turn.task.attempt > 1)),
        attributes={
            telemetry.ROUTE_AGENT: step.agent,
            telemetry.ROUTE_CONFIDENCE: step.route.confidence,
        },
    )
    return await turn.calls.make(call)


def _find_obstacle(step: Step, needed: Collection[Outcome]) -> Outcome | None:
    """Return the outcome of a step that can't be run now, or None if it can be run.

    `needed` are the outcomes of the steps whose results it needs.
    """
    if not step.agent:
        return failed_outcome("", "no agent here fits it")
    if any(not each.is_waiting and not (each.is_answer and each.text) for each in needed):
        return failed_outcome(step.agent, "the result that it needs is missing")
    if any(each.is_waiting for each in needed):
        # Postponed until those steps complete: see trunkline.supervisor.recovery.
        return Outcome(step.agent, State.TASK_STATE_INPUT_REQUIRED)
    return None


def _build_message(
    turn: SupervisorTurn, step: Step, text: str, child_id: str
) -> message_pb2.Message:
    """Return the message for a child: the text of the step with the other parts of the request.

    Answers to approvals of the child replace both.
    """
    task = turn.task
    if step.answers:
        return turn.calls.build_answer(child_id, step.answers, turn=task.turn)
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
