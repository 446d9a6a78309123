"""What each node of the supervisor's graph does; the graph itself is trunkline.supervisor.graph."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

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
from trunkline.supervisor.following_up import follow_up, last_agent
from trunkline.supervisor.planning import MAX_STEPS, plan_steps
from trunkline.supervisor.resuming import to_answer
from trunkline.supervisor.running import Turn, run_steps
from trunkline.supervisor.steps import Step, SupervisorState
from trunkline.tasks.lifecycle import State
from trunkline.v1 import event_pb2

_TOKEN = re.compile(r"\S+\s*|\s+")
# The answer is written in pieces of this size, so that each fits a frame of the wire.
_PIECE_CHARS = 32 * 1024

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
    steps = plan_steps(task.text, turn.router)
    if len(steps) > MAX_STEPS:
        await task.require_input(too_many(len(steps)))
        return None
    if not turn.router.unknown_address(task.text):
        await _settle(turn, steps)
    if not any(step.agent for step in steps):
        await task.record(*_decisions(steps[:1]))
        await task.require_input(nobody_fits(steps, turn.router))
        return None
    await _write_plan(turn, steps, 1, steps)
    return {"steps": steps, "outcomes": {}, "revision": 1}


async def _settle(turn: Turn, steps: tuple[Step, ...]) -> None:
    """Find somebody for what fits nobody: whom the conversation was with, or the default agent."""
    if not any(step.agent for step in steps):
        follow_up(steps, await last_agent(turn.task, turn.directory, turn.router))
    for step in steps:
        turn.router.settle(step.route)


async def plan(state: SupervisorState, turn: Turn) -> Done:
    """Write the plan anew, with other agents for steps that failed."""
    revision = state["revision"] + 1
    await _write_plan(turn, state["steps"], revision, state["retries"])
    return {"retries": (), "revision": revision}, "run"


async def run(state: SupervisorState, turn: Turn) -> Done:
    """Run the steps that have no outcome yet."""
    return {"outcomes": await run_steps(turn, state["steps"], state["outcomes"])}, "synthesise"


async def synthesise(state: SupervisorState, turn: Turn) -> Done:
    """Give failed steps to the next best agent, once; else put one answer together: the end."""
    if not state.get("is_revised"):
        checked = _check(state)
        if checked.get("retries"):
            return checked, "plan"
    await _deliver(turn, synthesis(state["steps"], state["outcomes"]))
    return {}, "end"


async def _write_plan(
    turn: Turn, steps: Sequence[Step], revision: int, routed: Sequence[Step]
) -> None:
    """Write the plan, token by token and then as steps, and record who was chosen and why.

    All of it is one commit: a takeover finds the whole plan, or none.
    """
    tokens = _TOKEN.findall(plan_text(steps))
    whole = event_pb2.PlanChanged(
        plan_id=turn.plan_id, revision=revision, steps=plan_steps_of(steps)
    )
    await turn.task.record(
        plan_run(turn.plan_id, revision, tokens),
        event_pb2.Event(plan=whole),
        *_decisions(routed),
    )


def _check(state: SupervisorState) -> SupervisorState:
    """Return the state with the steps that another agent is to try, if there are any."""
    outcomes = dict(state["outcomes"])
    steps = {step.id: step for step in state["steps"]}
    retries: list[Step] = []
    for step in state["steps"]:
        is_blocked = any(retry.id in step.needs for retry in retries)
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


async def _deliver(turn: Turn, answer: Answer) -> None:
    """Give the answer as one artifact, and end the turn."""
    task = turn.task
    if answer.text:
        artifact = task.artifact(
            "answer", id=f"answer-{task.turn}", kind=event_pb2.ARTIFACT_KIND_SYNTHESIS
        )
        for begin in range(0, len(answer.text), _PIECE_CHARS):
            end = begin + _PIECE_CHARS
            await artifact.append(answer.text[begin:end], last=end >= len(answer.text))
    said = answer.said or None
    if answer.state == State.TASK_STATE_COMPLETED:
        await task.complete(said)
    elif answer.state == State.TASK_STATE_INPUT_REQUIRED:
        await task.require_input(said)
    elif answer.state == State.TASK_STATE_AUTH_REQUIRED:
        await task.require_auth(said)
    else:
        await task.fail(said)


def _decisions(steps: Sequence[Step]) -> list[event_pb2.Event]:
    return [event_pb2.Event(route_decided=step.route) for step in steps]
