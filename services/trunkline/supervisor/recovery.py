"""Recovers from the journal the state of a turn whose host was lost. Pure.

The journal holds the plan with its texts, the routes, the called children, and their answers in the
forwarded artifacts. A separate checkpoint is not needed, and could contradict it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trunkline.agents.calls.outcome import MAX_TEXT_CHARS, Outcome, parse_agents, shorten
from trunkline.agents.calls.transcript import NEWS_KINDS
from trunkline.core.parts import join_texts
from trunkline.supervisor.steps import Step, SupervisorState
from trunkline.tasks import approvals
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State
from trunkline.v1 import event_pb2, snapshot_pb2


def answer_waiting_children(
    snapshot: snapshot_pb2.TaskSnapshot, text: str
) -> SupervisorState | None:
    """Return the state that passes the message of a turn to the waiting children, if some wait.

    Answers to approvals go to the children that requested them, and the other children keep
    waiting. Without such answers, the text goes to the first child with another question.
    """
    waiting_steps = _find_waiting_steps(snapshot)
    if not waiting_steps:
        return None
    answers = _find_approval_answers(snapshot)
    requesters = {
        approval.requested.child_task_id
        for approval in approvals.pending_approvals(snapshot.approvals)
    }
    steps: list[Step] = []
    outcomes: dict[str, Outcome] = {}
    has_recipient = bool(answers)
    for step in waiting_steps:
        if step.child_id in answers:
            steps.append(replace(step, text="", answers=answers[step.child_id]))
        elif not has_recipient and (step.text or step.child_id not in requesters):
            steps.append(replace(step, text=text))
            has_recipient = True
        else:
            steps.append(step)
            outcomes[step.id] = Outcome(step.agent, State.TASK_STATE_INPUT_REQUIRED, step.text)
    postponed, earlier_outcomes = _find_postponed_steps(snapshot, waiting_steps)
    return {
        "steps": (*steps, *postponed),
        "outcomes": {**earlier_outcomes, **outcomes},
        "is_revised": True,
    }


def recover_state(
    start: snapshot_pb2.TaskSnapshot,
    latest: snapshot_pb2.TaskSnapshot,
    text: str,
    *,
    files: str = "",
) -> SupervisorState | None:
    """Return the state of an interrupted turn, or None if it had no plan yet.

    `start` is the task at the start of the turn, `latest` its last state. `text` is the request,
    `files` describes its files (see `describe_files`).
    """
    ended_children = _find_child_outcomes(start, latest)
    children = {
        (child.started.step_id, child.started.agent): child.started.task_id
        for child in latest.children[len(start.children) :]
    }
    resumed_state = answer_waiting_children(start, text)
    if resumed_state:
        steps = tuple(
            replace(step, called_child_id=children.get((step.id, step.agent), ""))
            for step in resumed_state["steps"]
        )
        new_outcomes = {
            step.id: ended_children[child_id]
            for step in steps
            if step.id not in resumed_state["outcomes"]
            and (child_id := step.child_id or step.called_child_id) in ended_children
        }
        outcomes = {**resumed_state["outcomes"], **new_outcomes}
        return {"steps": steps, "outcomes": outcomes, "is_revised": True}
    plan = next((plan for plan in reversed(latest.plans) if plan.steps), None)
    if plan is None or plan.first_sequence <= start.sequence:
        return None
    routes = {route.step_id: route for route in latest.routes[len(start.routes) :]}
    steps = tuple(_build_step(plan_step, routes, children) for plan_step in plan.steps)
    if files not in text:
        # The plan shows the files for a step without text.
        steps = tuple(
            replace(step, text="", plan_text=files) if step.text == files else step
            for step in steps
        )
    outcomes = {
        step.id: ended_children[step.called_child_id]
        for step in steps
        if step.called_child_id in ended_children
    }
    return {
        "steps": tuple(_name_earlier_failure(step, children, ended_children) for step in steps),
        "outcomes": outcomes,
        # A retried step has a second route in the journal.
        "is_revised": len(latest.routes) - len(start.routes) > len(plan.steps),
    }


def read_plan(snapshot: snapshot_pb2.TaskSnapshot) -> tuple[Step, ...]:
    """Return the steps of the latest plan of a supervisor's task; none if it has no plan."""
    routes = {route.step_id: route for route in snapshot.routes}
    steps = [_build_step(plan_step, routes, {}) for plan_step in _latest_plan(snapshot)]
    return tuple(steps) if routes else ()


def _find_approval_answers(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> dict[str, tuple[event_pb2.ApprovalAnswered, ...]]:
    """Return this turn's answers to the approvals of children, keyed by child id."""
    answers: dict[str, tuple[event_pb2.ApprovalAnswered, ...]] = {}
    for approval in snapshot.approvals:
        child_id = approval.requested.child_task_id
        if child_id and approval.HasField("answered") and approval.answered.turn >= snapshot.turn:
            answers[child_id] = (*answers.get(child_id, ()), approval.answered)
    return answers


def _find_postponed_steps(
    snapshot: snapshot_pb2.TaskSnapshot, waiting_steps: Sequence[Step]
) -> tuple[Sequence[Step], Mapping[str, Outcome]]:
    """Return the steps postponed until waiting steps end, and the outcomes of completed steps.

    Steps that need the result of a failed step are excluded, since they were dropped.
    """
    plan_steps = _latest_plan(snapshot)
    routes = {route.step_id: route for route in snapshot.routes}
    outcomes = {
        child.started.step_id: _build_outcome(child.finished, snapshot, set())
        for child in snapshot.children
        if child.HasField("finished") and child.finished.state == State.TASK_STATE_COMPLETED
    }
    started_ids = {child.started.step_id for child in snapshot.children}
    candidates = [
        _build_step(plan_step, routes, {})
        for plan_step in plan_steps
        if plan_step.step_id not in started_ids
    ]
    blocking_ids = {step.id for step in waiting_steps}
    postponed: list[Step] = []
    while True:
        additions = [
            step
            for step in candidates
            if step not in postponed
            and blocking_ids.intersection(step.needed_steps)
            and all(needed in blocking_ids or needed in outcomes for needed in step.needed_steps)
        ]
        if not additions:
            return postponed, outcomes
        postponed += additions
        blocking_ids |= {step.id for step in additions}


def _latest_plan(snapshot: snapshot_pb2.TaskSnapshot) -> Sequence[event_pb2.PlanStep]:
    return next((plan.steps for plan in reversed(snapshot.plans) if plan.steps), ())


def _build_step(
    plan_step: event_pb2.PlanStep,
    routes: Mapping[str, event_pb2.RouteDecided],
    children: Mapping[tuple[str, str], str],
) -> Step:
    route = routes.get(plan_step.step_id) or event_pb2.RouteDecided(
        agent=plan_step.agent, step_id=plan_step.step_id
    )
    return Step(
        plan_step.step_id,
        plan_step.text,
        route,
        tuple(plan_step.after),
        called_child_id=children.get((plan_step.step_id, plan_step.agent), ""),
    )


def _name_earlier_failure(
    step: Step,
    children: Mapping[tuple[str, str], str],
    ended_children: Mapping[str, Outcome],
) -> Step:
    """Return a step with the failure of the agent that was asked before, if there was one."""
    for (step_id, agent), child_id in children.items():
        if step_id == step.id and agent != step.agent and child_id in ended_children:
            failure = step.describe_failure(ended_children[child_id])
            return replace(step, earlier_failure=failure)
    return step


def _find_child_outcomes(
    start: snapshot_pb2.TaskSnapshot, latest: snapshot_pb2.TaskSnapshot
) -> dict[str, Outcome]:
    """Return the outcomes of the children that stopped in this turn, keyed by child id.

    A child that waited before the turn and waits again is excluded. It may repeat its question, so
    it is read again.
    """
    waiting_ids = {
        child.started.task_id
        for child in start.children
        if child.HasField("finished") and child.finished.state not in TERMINAL
    }
    earlier_artifacts = {(info.origin.task_id, info.artifact_id) for info in start.artifacts}
    return {
        child.started.task_id: _build_outcome(child.finished, latest, earlier_artifacts)
        for child in latest.children
        if child.HasField("finished")
        and (child.finished.state in TERMINAL or child.started.task_id not in waiting_ids)
    }


def _build_outcome(
    end: event_pb2.ChildFinished,
    latest: snapshot_pb2.TaskSnapshot,
    earlier_artifacts: set[tuple[str, str]],
) -> Outcome:
    agent, child_id = end.agent, end.task_id
    if end.state != State.TASK_STATE_COMPLETED:
        return Outcome(
            agent, end.state, end.text, names_failures=end.failures_named, child_id=child_id
        )
    pairs = [
        (artifact, info)
        for artifact, info in zip(latest.task.artifacts, latest.artifacts, strict=True)
        if (info.origin.child_task_id or info.origin.task_id) == child_id
        and (info.origin.task_id, info.artifact_id) not in earlier_artifacts
        and info.kind not in NEWS_KINDS
    ]
    syntheses = [
        artifact
        for artifact, info in pairs
        if info.kind == event_pb2.ARTIFACT_KIND_SYNTHESIS and info.origin.task_id == child_id
    ]
    artifacts = syntheses or [artifact for artifact, _ in pairs]
    texts = (join_texts(artifact.parts) for artifact in artifacts)
    text = "\n".join(text for text in texts if text)
    text = shorten(text, len(text), MAX_TEXT_CHARS, agent)
    files = tuple(
        part for artifact in artifacts for part in artifact.parts if not part.HasField("text")
    )
    is_status_text = not text and not files
    return Outcome(
        agent,
        end.state,
        end.text if is_status_text else text,
        files,
        is_partial=end.partial,
        child_id=child_id,
        is_status_text=is_status_text,
        named_agents=tuple(name for each in syntheses for name in parse_agents(each.metadata)),
    )


def _find_waiting_steps(snapshot: snapshot_pb2.TaskSnapshot) -> tuple[Step, ...]:
    """Return the steps whose children wait, oldest first, each with its child's question."""
    plan_texts = {plan_step.step_id: plan_step.text for plan_step in _latest_plan(snapshot)}
    return tuple(
        Step(
            child.started.step_id,
            child.finished.text,
            event_pb2.RouteDecided(agent=child.started.agent, step_id=child.started.step_id),
            child_id=child.started.task_id,
            plan_text=plan_texts.get(child.started.step_id, ""),
        )
        for child in snapshot.children
        if child.HasField("finished") and child.finished.state in INTERRUPTED
    )
