"""The work of the nodes in the supervisor's graph (trunkline.supervisor.graph)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from trunkline.journal.events import plan_event
from trunkline.phrasing import asks_for_introduction
from trunkline.supervisor.answer import (
    CombinedAnswer,
    ask_user,
    build_plan_steps,
    combine_outcomes,
    deliver_answer,
    find_second_choice,
    no_agent_question,
    render_introduction,
    render_plan,
    rewrite_answer,
    too_many_steps_question,
)
from trunkline.supervisor.follow_up import find_last_agent, route_to_last_agent
from trunkline.supervisor.recovery import answer_waiting_children
from trunkline.supervisor.request_splitter import (
    MAX_STEPS,
    PlanResult,
    is_open_question,
    names_agents,
    split_request,
)
from trunkline.supervisor.router import Router
from trunkline.supervisor.step_runner import SupervisorTurn, run_steps
from trunkline.supervisor.steps import Step, SupervisorState, describe_files
from trunkline.supervisor.tags import split_words
from trunkline.tasks.lifecycle import State
from trunkline.v1 import event_pb2

_TOKEN = re.compile(r"\S+\s*|\s+")

# A node's update of the state, and the next node.
NodeResult: TypeAlias = tuple[SupervisorState, Literal["plan", "run", "synthesise", "end"]]


async def begin_turn(turn: SupervisorTurn) -> SupervisorState | None:
    """Plan the request and record the plan. Returns None if it asks the user instead.

    An answer to a waiting child continues the plan that was recorded before.
    """
    task = turn.task
    state = answer_waiting_children(task.snapshot, task.text)
    if state:
        return state
    by_score = split_request(task.text, turn.router)
    if _is_introduction(task.text, by_score, turn.router):
        by_score[0].route.reasons[:] = ["it asks what can be asked here"]
        await task.record(*_route_events(by_score))
        await deliver_answer(
            turn, CombinedAnswer(State.TASK_STATE_COMPLETED, render_introduction(turn.router))
        )
        return None
    revision = turn.plan.revision
    result = await _plan_request(turn, by_score)
    steps = _describe_steps(result.steps, describe_files(task.message))
    if len(steps) > MAX_STEPS:
        await ask_user(turn, too_many_steps_question(len(steps)))
        return None
    if not turn.router.find_unknown_address(task.text):
        await _route_remaining(turn, steps)
    if result.question or not any(step.agent for step in steps):
        if result.written_text or turn.plan.revision != revision:
            # A part of the plan is published already, so complete it.
            await _write_plan(turn, steps, steps[:1], written_text=result.written_text)
        else:
            await task.record(*_route_events(steps[:1]))
        await ask_user(turn, result.question or no_agent_question(steps, turn.router))
        return None
    await _write_plan(turn, steps, steps, written_text=result.written_text)
    return {"steps": steps, "outcomes": {}}


def _is_introduction(text: str, by_score: Sequence[Step], router: Router) -> bool:
    """Return whether to introduce the agents. An agent that fits the request answers it itself."""
    is_routed = any(step.agent for step in by_score) or router.has_default
    return not is_routed and asks_for_introduction(text)


async def _plan_request(turn: SupervisorTurn, by_score: tuple[Step, ...]) -> PlanResult:
    """Plan with the model, if there is one and the request does not name its agents."""
    task, router, planner = turn.task, turn.router, turn.planner
    is_clear = names_agents(task.text, router) or not split_words(task.text)
    if planner is None or is_clear or not router.cards:
        return PlanResult(by_score)
    await task.working()
    last_agent = await find_last_agent(task, turn.directory, router)
    earlier_messages = turn.memory.earlier_messages() if turn.memory is not None else ()
    result = await planner.plan(
        task.text,
        by_score,
        router,
        turn.plan,
        last_agent=last_agent,
        earlier_messages=earlier_messages,
        meter=task.meter,
    )
    if result.steps:
        return result
    if result.question:
        route = event_pb2.RouteDecided(reasons=[f"{planner.name} has a question"])
        route.scores.extend(by_score[0].route.scores)
        return replace(result, steps=(Step("step-1", task.text, route),))
    for step in by_score:
        step.route.reasons.append(f"planned by score: {result.problem}")
    return PlanResult(by_score)


def _describe_steps(steps: Sequence[Step], files: str) -> tuple[Step, ...]:
    """Describe steps without text by the files that came with them."""
    return tuple(step if step.text.strip() else replace(step, plan_text=files) for step in steps)


async def _route_remaining(turn: SupervisorTurn, steps: tuple[Step, ...]) -> None:
    """Route steps without an agent.

    Whole questions go to the agent that takes any, other steps to the last agent if no step has
    one, and what remains to the default.
    """
    for step in steps:
        if is_open_question(step.text):
            turn.router.apply_open_questions(step.route)
    if not any(step.agent for step in steps):
        route_to_last_agent(steps, await find_last_agent(turn.task, turn.directory, turn.router))
    for step in steps:
        turn.router.apply_default(step.route)


async def revise_plan(state: SupervisorState, turn: SupervisorTurn) -> NodeResult:
    """Record a revised plan, with other agents for failed steps."""
    await _write_plan(turn, state["steps"], state["retries"])
    return {"retries": ()}, "run"


async def run_plan(state: SupervisorState, turn: SupervisorTurn) -> NodeResult:
    """Run the steps without an outcome."""
    return {"outcomes": await run_steps(turn, state["steps"], state["outcomes"])}, "synthesise"


async def synthesise_answer(state: SupervisorState, turn: SupervisorTurn) -> NodeResult:
    """Retry failed steps once with the next best agent. Otherwise deliver the answer and end."""
    if not state.get("is_revised"):
        revised_state = _prepare_retries(state)
        if revised_state.get("retries"):
            return revised_state, "plan"
    answer = combine_outcomes(state["steps"], state["outcomes"])
    await deliver_answer(
        turn, await rewrite_answer(turn, answer, state["steps"], state["outcomes"])
    )
    return {}, "end"


async def _write_plan(
    turn: SupervisorTurn,
    steps: Sequence[Step],
    routed_steps: Sequence[Step],
    *,
    written_text: str = "",
) -> None:
    """Record the plan, as text and as steps, and the route of each step.

    `written_text` is the part of the text that has been written. The rest is one commit, so a
    takeover finds either the whole plan or none.
    """
    text = render_plan(steps)
    if not text.startswith(written_text):
        turn.plan.start_revision()
        written_text = ""
    plan_id, revision = turn.plan.id, turn.plan.revision
    tokens = _TOKEN.findall(text[len(written_text) :])
    plan = event_pb2.PlanChanged(plan_id=plan_id, revision=revision, steps=build_plan_steps(steps))
    await turn.task.record(
        *([plan_event(plan_id, revision, tokens)] if tokens else ()),
        event_pb2.Event(plan=plan),
        *_route_events(routed_steps),
    )
    turn.plan.start_revision()


def _prepare_retries(state: SupervisorState) -> SupervisorState:
    """Return the state with the steps to retry with other agents, if there are any."""
    outcomes = dict(state["outcomes"])
    steps = {step.id: step for step in state["steps"]}
    retried_steps = {
        step.id: alternative
        for step in state["steps"]
        if (alternative := find_second_choice(step, outcomes[step.id])) is not None
    }
    # Also retry the steps that need these. A model's plan may list the steps in any order.
    blocked = list(retried_steps)
    while blocked:
        needed = blocked.pop()
        for step in state["steps"]:
            if needed in step.needed_steps and step.id not in retried_steps:
                retried_steps[step.id] = step
                blocked.append(step.id)
    for step_id in retried_steps:
        del outcomes[step_id]
    steps |= retried_steps
    retries = [steps[step_id] for step_id in steps if step_id in retried_steps]
    return {
        "steps": tuple(steps.values()),
        "outcomes": outcomes,
        "retries": tuple(retries),
        "is_revised": True,
    }


def _route_events(steps: Sequence[Step]) -> list[event_pb2.Event]:
    return [event_pb2.Event(route_decided=step.route) for step in steps]
