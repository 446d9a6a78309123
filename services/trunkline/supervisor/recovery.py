"""Recovers from the journal the state of a turn whose host was lost. Pure.

The journal holds the plan with its texts, the routes, the called children, and their answers in the
forwarded artifacts. A separate checkpoint is not needed, and could contradict it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trunkline.supervisor.steps import Outcome, Step, SupervisorState, shorten
from trunkline.supervisor.transcript import KEPT_CHARS
from trunkline.tasks import approvals
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State
from trunkline.v1 import event_pb2, part_pb2, snapshot_pb2


def answer_waiting_children(
    snapshot: snapshot_pb2.TaskSnapshot, text: str
) -> SupervisorState | None:
    """Return the state that passes a turn's message to the waiting children; None if none waits.

    Answers to approvals go to the children that requested them, and the other children keep
    waiting. Without such answers, the text goes to the first child with another question.
    """
    waiting = _waiting_steps(snapshot)
    if not waiting:
        return None
    answers = _approval_answers(snapshot)
    asking = {
        one.requested.child_task_id for one in approvals.pending_approvals(snapshot.approvals)
    }
    steps: list[Step] = []
    outcomes: dict[str, Outcome] = {}
    is_given = bool(answers)
    for step in waiting:
        if step.child_id in answers:
            steps.append(replace(step, text="", answers=answers[step.child_id]))
        elif not is_given and (step.text or step.child_id not in asking):
            steps.append(replace(step, text=text))
            is_given = True
        else:
            steps.append(step)
            outcomes[step.id] = Outcome(step.agent, State.TASK_STATE_INPUT_REQUIRED, step.text)
    postponed, known = _postponed_steps(snapshot, waiting)
    return {
        "steps": (*steps, *postponed),
        "outcomes": {**known, **outcomes},
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
    ended = _child_outcomes(start, latest)
    children = {
        (child.started.step_id, child.started.agent): child.started.task_id
        for child in latest.children[len(start.children) :]
    }
    answering = answer_waiting_children(start, text)
    if answering:
        steps = tuple(
            replace(step, called_child_id=children.get((step.id, step.agent), ""))
            for step in answering["steps"]
        )
        stopped = {
            step.id: ended[child_id]
            for step in steps
            if step.id not in answering["outcomes"]
            and (child_id := step.child_id or step.called_child_id) in ended
        }
        outcomes = {**answering["outcomes"], **stopped}
        return {"steps": steps, "outcomes": outcomes, "is_revised": True}
    planned = next((plan for plan in reversed(latest.plans) if plan.steps), None)
    if planned is None or planned.first_sequence <= start.sequence:
        return None
    routes = {route.step_id: route for route in latest.routes[len(start.routes) :]}
    steps = tuple(_step(one, routes, children) for one in planned.steps)
    if files not in text:
        # The plan shows the files for a step without text.
        steps = tuple(
            replace(step, text="", plan_text=files) if step.text == files else step
            for step in steps
        )
    outcomes = {
        step.id: ended[step.called_child_id] for step in steps if step.called_child_id in ended
    }
    return {
        "steps": steps,
        "outcomes": outcomes,
        # A retried step has a second route in the journal.
        "is_revised": len(latest.routes) - len(start.routes) > len(planned.steps),
    }


def _approval_answers(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> dict[str, tuple[event_pb2.ApprovalAnswered, ...]]:
    """Return this turn's answers to the approvals of children, keyed by child id."""
    found: dict[str, tuple[event_pb2.ApprovalAnswered, ...]] = {}
    for one in snapshot.approvals:
        child_id = one.requested.child_task_id
        if child_id and one.HasField("answered") and one.answered.turn >= snapshot.turn:
            found[child_id] = (*found.get(child_id, ()), one.answered)
    return found


def _postponed_steps(
    snapshot: snapshot_pb2.TaskSnapshot, waiting: Sequence[Step]
) -> tuple[Sequence[Step], Mapping[str, Outcome]]:
    """Return the steps that were postponed for waiting ones, and the known outcomes.

    Steps that need the result of a failed step are excluded, since they were dropped.
    """
    planned = _latest_plan(snapshot)
    routes = {route.step_id: route for route in snapshot.routes}
    known = {
        child.started.step_id: _outcome(child.finished, snapshot, set())
        for child in snapshot.children
        if child.HasField("finished") and child.finished.state == State.TASK_STATE_COMPLETED
    }
    has_begun = {child.started.step_id for child in snapshot.children}
    left = [_step(one, routes, {}) for one in planned if one.step_id not in has_begun]
    held = {step.id for step in waiting}
    put_off: list[Step] = []
    while True:
        more = [
            step
            for step in left
            if step not in put_off
            and held.intersection(step.needed_steps)
            and all(needed in held or needed in known for needed in step.needed_steps)
        ]
        if not more:
            return put_off, known
        put_off += more
        held |= {step.id for step in more}


def _latest_plan(snapshot: snapshot_pb2.TaskSnapshot) -> Sequence[event_pb2.PlanStep]:
    return next((plan.steps for plan in reversed(snapshot.plans) if plan.steps), ())


def _step(
    planned: event_pb2.PlanStep,
    routes: Mapping[str, event_pb2.RouteDecided],
    children: Mapping[tuple[str, str], str],
) -> Step:
    route = routes.get(planned.step_id) or event_pb2.RouteDecided(
        agent=planned.agent, step_id=planned.step_id
    )
    return Step(
        planned.step_id,
        planned.text,
        route,
        tuple(planned.after),
        called_child_id=children.get((planned.step_id, planned.agent), ""),
    )


def _child_outcomes(
    start: snapshot_pb2.TaskSnapshot, latest: snapshot_pb2.TaskSnapshot
) -> dict[str, Outcome]:
    """Return the outcomes of the children that stopped in this turn, keyed by child id.

    A child that waited before and waits again is excluded, because it may ask the same: it is read
    again.
    """
    waited = {
        child.started.task_id
        for child in start.children
        if child.HasField("finished") and child.finished.state not in TERMINAL
    }
    known = {(info.origin.task_id, info.artifact_id) for info in start.artifacts}
    return {
        child.started.task_id: _outcome(child.finished, latest, known)
        for child in latest.children
        if child.HasField("finished")
        and (child.finished.state in TERMINAL or child.started.task_id not in waited)
    }


def _outcome(
    finished: event_pb2.ChildFinished,
    latest: snapshot_pb2.TaskSnapshot,
    known: set[tuple[str, str]],
) -> Outcome:
    agent, child_id = finished.agent, finished.task_id
    if finished.state != State.TASK_STATE_COMPLETED:
        return Outcome(agent, finished.state, finished.text, child_id=child_id)
    written = [
        (artifact, info)
        for artifact, info in zip(latest.task.artifacts, latest.artifacts, strict=True)
        if (info.origin.child_task_id or info.origin.task_id) == child_id
        and (info.origin.task_id, info.artifact_id) not in known
    ]
    syntheses = [
        one
        for one in written
        if one[1].kind == event_pb2.ARTIFACT_KIND_SYNTHESIS and one[1].origin.task_id == child_id
    ]
    texts = (_text(artifact.parts) for artifact, _ in syntheses or written)
    text = "\n".join(text for text in texts if text)
    text = shorten(text, len(text), KEPT_CHARS, agent)
    has_files = any(not part.HasField("text") for artifact, _ in written for part in artifact.parts)
    is_said = not text and not has_files
    return Outcome(
        agent,
        finished.state,
        finished.text if is_said else text,
        has_files=has_files,
        child_id=child_id,
        is_status_text=is_said,
    )


def _text(parts: Sequence[part_pb2.Part]) -> str:
    return "".join(part.text for part in parts if part.HasField("text"))


def _waiting_steps(snapshot: snapshot_pb2.TaskSnapshot) -> tuple[Step, ...]:
    """Return the steps whose children wait, oldest first, each with its child's question."""
    planned = {one.step_id: one.text for one in _latest_plan(snapshot)}
    return tuple(
        Step(
            child.started.step_id,
            child.finished.text,
            event_pb2.RouteDecided(agent=child.started.agent, step_id=child.started.step_id),
            child_id=child.started.task_id,
            plan_text=planned.get(child.started.step_id, ""),
        )
        for child in snapshot.children
        if child.HasField("finished") and child.finished.state in INTERRUPTED
    )
