"""What each node of the supervisor's graph does; the graph itself is trunkline.supervisor.graph."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from trunkline.journal.events import plan_event
from trunkline.supervisor.answer import (
    nobody_fits,
    plan_steps_of,
    plan_text,
    second_choice,
    synthesis,
    too_many,
)
from trunkline.supervisor.delivering import ask_back, deliver, worded
from trunkline.supervisor.planning.following_up import follow_up, last_agent
from trunkline.supervisor.planning.splitting import MAX_STEPS, Planned, plan_steps, says_who
from trunkline.supervisor.planning.tags import words_of
from trunkline.supervisor.resuming import to_answer
from trunkline.supervisor.running import Turn, run_steps
from trunkline.supervisor.steps import Step, SupervisorState, files_of
from trunkline.v1 import event_pb2

_TOKEN = re.compile(r"\S+\s*|\s+")

# What a node has found out, and which node comes next.
Done: TypeAlias = tuple[SupervisorState, Literal["plan", "run", "synthesise", "end"]]


async def begin(turn: Turn) -> SupervisorState | None:
    """Find out what is asked of whom and write it down, or ask back: then there is no more to do.

    An answer to a child that waits belongs to a plan that was written before.
    """
    task = turn.task
    answered = to_answer(task.snapshot, task.text)
    if answered:
        return answered
    revision = turn.plan.revision
    planned = await _planned(turn)
    steps = _named(planned.steps, files_of(task.message))
    if len(steps) > MAX_STEPS:
        await ask_back(turn, too_many(len(steps)))
        return None
    if not turn.router.unknown_address(task.text):
        await _settle(turn, steps)
    if planned.question or not any(step.agent for step in steps):
        if planned.shown or turn.plan.revision != revision:
            # Whoever read along has seen a plan begin: it comes to an end.
            await _write_plan(turn, steps, steps[:1], shown=planned.shown)
        else:
            await task.record(*_decisions(steps[:1]))
        await ask_back(turn, planned.question or nobody_fits(steps, turn.router))
        return None
    await _write_plan(turn, steps, steps, shown=planned.shown)
    return {"steps": steps, "outcomes": {}}


async def _planned(turn: Turn) -> Planned:
    """Plan with the model, if there is one and the request doesn't say itself who is meant."""
    task, router, planner = turn.task, turn.router, turn.planner
    by_score = plan_steps(task.text, router)
    is_clear = says_who(task.text, router) or not words_of(task.text)
    if planner is None or is_clear or not router.cards:
        return Planned(by_score)
    await task.working()
    last = await last_agent(task, turn.directory, router)
    before = turn.memory.before() if turn.memory is not None else ()
    planned = await planner.plan(task.text, by_score, router, turn.plan, last=last, before=before)
    if planned.steps:
        return planned
    if planned.question:
        nobody = event_pb2.RouteDecided(reasons=[f"{planner.name} has a question"])
        nobody.scores.extend(by_score[0].route.scores)
        return replace(planned, steps=(Step("step-1", task.text, nobody),))
    for step in by_score:
        step.route.reasons.append(f"planned by score: {planned.problem}")
    return Planned(by_score)


def _named(steps: Sequence[Step], files: str) -> tuple[Step, ...]:
    """A step that is asked for without a word is called like the files that came with it."""
    return tuple(step if step.text.strip() else replace(step, planned=files) for step in steps)


async def _settle(turn: Turn, steps: tuple[Step, ...]) -> None:
    """Find somebody for what fits nobody: whom the conversation was with, or the default agent."""
    if not any(step.agent for step in steps):
        follow_up(steps, await last_agent(turn.task, turn.directory, turn.router))
    for step in steps:
        turn.router.settle(step.route)


async def plan(state: SupervisorState, turn: Turn) -> Done:
    """Write the plan anew, with other agents for steps that failed."""
    await _write_plan(turn, state["steps"], state["retries"])
    return {"retries": ()}, "run"


async def run(state: SupervisorState, turn: Turn) -> Done:
    """Run the steps that have no outcome yet."""
    return {"outcomes": await run_steps(turn, state["steps"], state["outcomes"])}, "synthesise"


async def synthesise(state: SupervisorState, turn: Turn) -> Done:
    """Give failed steps to the next best agent, once; else put one answer together: the end."""
    if not state.get("is_revised"):
        checked = _check(state)
        if checked.get("retries"):
            return checked, "plan"
    answer = synthesis(state["steps"], state["outcomes"])
    await deliver(turn, await worded(turn, answer, state["steps"], state["outcomes"]))
    return {}, "end"


async def _write_plan(
    turn: Turn, steps: Sequence[Step], routed: Sequence[Step], *, shown: str = ""
) -> None:
    """Write the plan, token by token and then as steps, and record who was chosen and why.

    `shown` is what has been written of it. The rest is one commit: a takeover finds the whole
    plan, or none.
    """
    text = plan_text(steps)
    if not text.startswith(shown):
        turn.plan.start_revision()
        shown = ""
    plan_id, revision = turn.plan.id, turn.plan.revision
    tokens = _TOKEN.findall(text[len(shown) :])
    whole = event_pb2.PlanChanged(plan_id=plan_id, revision=revision, steps=plan_steps_of(steps))
    await turn.task.record(
        *([plan_event(plan_id, revision, tokens)] if tokens else ()),
        event_pb2.Event(plan=whole),
        *_decisions(routed),
    )
    turn.plan.start_revision()


def _check(state: SupervisorState) -> SupervisorState:
    """Return the state with the steps that another agent is to try, if there are any."""
    outcomes = dict(state["outcomes"])
    steps = {step.id: step for step in state["steps"]}
    again = {
        step.id: other
        for step in state["steps"]
        if (other := second_choice(step, outcomes[step.id])) is not None
    }
    # Steps that need what is tried again; a model's plan has them in any order.
    blocked = list(again)
    while blocked:
        needed = blocked.pop()
        for step in state["steps"]:
            if needed in step.needs and step.id not in again:
                again[step.id] = step
                blocked.append(step.id)
    for step_id in again:
        del outcomes[step_id]
    steps |= again
    retries = [steps[step_id] for step_id in steps if step_id in again]
    return {
        "steps": tuple(steps.values()),
        "outcomes": outcomes,
        "retries": tuple(retries),
        "is_revised": True,
    }


def _decisions(steps: Sequence[Step]) -> list[event_pb2.Event]:
    return [event_pb2.Event(route_decided=step.route) for step in steps]
