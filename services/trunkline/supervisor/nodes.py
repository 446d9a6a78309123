"""What each node of the supervisor's graph does; the graph itself is trunkline.supervisor.graph."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypedDict

from trunkline.journal.events import plan_run
from trunkline.supervisor.answer import (
    Answer,
    nobody_fits,
    plan_steps_of,
    plan_text,
    second_choice,
    synthesis,
    too_many,
)
from trunkline.supervisor.planning import MAX_STEPS, plan_steps
from trunkline.supervisor.running import Turn, run_steps
from trunkline.supervisor.steps import Outcome, Step
from trunkline.tasks.lifecycle import INTERRUPTED, State
from trunkline.v1 import event_pb2, snapshot_pb2

_TOKEN = re.compile(r"\S+\s*|\s+")


class SupervisorState(TypedDict, total=False):
    """What the nodes hand on."""

    text: str
    """The request."""
    steps: tuple[Step, ...]
    question: str
    """What to ask instead of running anything."""
    outcomes: Mapping[str, Outcome]
    answer: Answer
    retries: tuple[Step, ...]
    """Failed steps that another agent is to try."""
    is_revised: bool
    """The plan has been made anew once; it isn't a second time."""
    revision: int
    """Of the plan that was written last."""


async def entry(state: SupervisorState) -> Literal["analyse", "run"]:
    """Begin with the request, or with the steps of a plan that the journal has already."""
    return "run" if state.get("steps") else "analyse"


async def analyse(state: SupervisorState, turn: Turn) -> SupervisorState:
    """Find out what is asked of whom: an answer to a child that waits, or something new."""
    answered = to_answer(turn.task.snapshot, state["text"])
    if answered:
        return answered
    steps = plan_steps(state["text"], turn.router)
    question = ""
    if len(steps) > MAX_STEPS:
        question = too_many(len(steps))
    elif not any(step.agent for step in steps):
        question = nobody_fits(steps, turn.router)
    return {"steps": steps, "question": question, "outcomes": {}}


async def after_analysis(state: SupervisorState) -> Literal["ask_back", "plan", "run"]:
    """Ask back when nothing can be run; a child that waits is in a plan already."""
    if state.get("question"):
        return "ask_back"
    return "run" if state["steps"][0].child_id else "plan"


async def ask_back(state: SupervisorState, turn: Turn) -> SupervisorState:
    """Say what is wrong with the request and what would work."""
    unrouted = tuple(step for step in state["steps"] if not step.agent)
    if unrouted:
        await turn.task.record(*_decisions(unrouted[:1]))
    await turn.task.require_input(state["question"])
    return {}


async def plan(state: SupervisorState, turn: Turn) -> SupervisorState:
    """Write the plan, token by token and then as steps, and record who was chosen and why.

    All of it is one commit: a takeover finds the whole plan, or none.
    """
    steps = state["steps"]
    revision = state.get("revision", 0) + 1
    tokens = _TOKEN.findall(plan_text(steps))
    whole = event_pb2.PlanChanged(
        plan_id=turn.plan_id, revision=revision, steps=plan_steps_of(steps)
    )
    await turn.task.record(
        plan_run(turn.plan_id, revision, tokens),
        event_pb2.Event(plan=whole),
        *_decisions(state.get("retries") or steps),
    )
    return {"retries": (), "revision": revision}


async def run(state: SupervisorState, turn: Turn) -> SupervisorState:
    """Run the steps that have no outcome yet."""
    return {"outcomes": await run_steps(turn, state["steps"], state["outcomes"])}


async def synthesise(state: SupervisorState, _turn: Turn) -> SupervisorState:
    """Put one answer together."""
    return {"answer": synthesis(state["steps"], state["outcomes"])}


async def check(state: SupervisorState, _turn: Turn) -> SupervisorState:
    """Give failed steps to the next best agent, once; else the answer stands."""
    if state.get("is_revised"):
        return {"retries": ()}
    outcomes = dict(state["outcomes"])
    steps = {step.id: step for step in state["steps"]}
    retries: list[Step] = []
    for step in state["steps"]:
        is_blocked = step.needs_result and any(retry.id in step.after for retry in retries)
        again = step if is_blocked else second_choice(step, outcomes[step.id])
        if again is not None:
            retries.append(again)
            steps[step.id] = again
            del outcomes[step.id]
    return {
        "steps": tuple(steps.values()),
        "outcomes": outcomes,
        "retries": tuple(retries),
        "is_revised": True,
    }


async def after_check(state: SupervisorState) -> Literal["plan", "deliver"]:
    """Plan again when there is somebody else to try."""
    return "plan" if state.get("retries") else "deliver"


async def deliver(state: SupervisorState, turn: Turn) -> SupervisorState:
    """Give the answer as one artifact, and end the turn."""
    answer = state["answer"]
    if answer.text:
        artifact = turn.task.artifact("answer", kind=event_pb2.ARTIFACT_KIND_SYNTHESIS)
        await artifact.append(answer.text, last=True)
    said = answer.said or None
    if answer.state == State.TASK_STATE_COMPLETED:
        await turn.task.complete(said)
    elif answer.state == State.TASK_STATE_INPUT_REQUIRED:
        await turn.task.require_input(said)
    elif answer.state == State.TASK_STATE_AUTH_REQUIRED:
        await turn.task.require_auth(said)
    else:
        await turn.task.fail(said)
    return {}


def _decisions(steps: tuple[Step, ...]) -> list[event_pb2.Event]:
    return [event_pb2.Event(route_decided=step.route) for step in steps]


def to_answer(snapshot: snapshot_pb2.TaskSnapshot, text: str) -> SupervisorState | None:
    """Return the state that gives a text to the first child that waits; None when none does."""
    waiting = _waiting_steps(snapshot)
    if not waiting:
        return None
    first, *others = waiting
    step = replace(first, text=text)
    kept = {
        other.id: Outcome(other.agent, State.TASK_STATE_INPUT_REQUIRED, other.text)
        for other in others
    }
    return {"steps": (step, *others), "outcomes": kept, "is_revised": True}


def _waiting_steps(snapshot: snapshot_pb2.TaskSnapshot) -> tuple[Step, ...]:
    """Steps whose children wait, oldest first; the text of each is what it asked."""
    return tuple(
        Step(
            child.started.step_id,
            child.finished.text,
            event_pb2.RouteDecided(agent=child.started.agent, step_id=child.started.step_id),
            child_id=child.started.task_id,
        )
        for child in snapshot.children
        if child.HasField("finished") and child.finished.state in INTERRUPTED
    )
