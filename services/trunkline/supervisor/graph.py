"""The graph of a supervisor, and its nodes. Importing this module loads LangGraph."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from trunkline.journal.events import plan_event
from trunkline.observe import telemetry
from trunkline.supervisor.answer import (
    ask_user,
    build_plan_steps,
    combine_outcomes,
    deliver_answer,
    find_second_choice,
    render_plan,
    rewrite_answer,
    too_many_steps_question,
)
from trunkline.supervisor.last_agent import find_last_agent
from trunkline.supervisor.plan_run import run_steps
from trunkline.supervisor.planning import MAX_STEPS, PlanResult
from trunkline.supervisor.roster import build_step
from trunkline.supervisor.steps import Step, SupervisorState, describe_files
from trunkline.supervisor.turn import SupervisorTurn
from trunkline.v1 import event_pb2

# `langgraph.graph.END`, whose type is `str`.
_END: Final = "__end__"
_TOKEN = re.compile(r"\S+\s*|\s+")


SupervisorGraph: TypeAlias = CompiledStateGraph[
    SupervisorState, SupervisorTurn, SupervisorState, SupervisorState
]


def compile_graph() -> SupervisorGraph:
    """Compile the graph: plan → run → check → synthesise.

    The nodes `plan` and `check` name the next node in their `Command`, because a conditional edge
    costs 0.1 ms more. Only the start has such an edge. `check` always follows `run`.
    All nodes are coroutine functions, because plain functions run in threads. The graph has no
    checkpointer, since the journal has all that a turn needs, and any number of turns may run in
    it. docs/supervisors.md has its drawing.
    """
    graph = StateGraph(SupervisorState, context_schema=SupervisorTurn)
    graph.add_node("plan", plan_steps)
    graph.add_node("run", run_steps)
    graph.add_node("check", check_outcomes)
    graph.add_node("synthesise", synthesise_answer)
    graph.add_conditional_edges(START, route_start)
    graph.add_edge("run", "check")
    return graph.compile(name="supervisor")


async def route_start(state: SupervisorState) -> Literal["plan", "run"]:
    """Return the first node.

    A turn that continues a plan has `outcomes`, perhaps empty, and skips the planning.
    """
    return "run" if "outcomes" in state else "plan"


async def plan_steps(
    state: SupervisorState, runtime: Runtime[SupervisorTurn]
) -> Command[Literal["run", "__end__"]]:
    """Plan the request unless it names its agents, and record the plan, also a revised one.

    Ends the turn with the question of the planner to the user, if it asks.

    Raises:
        ModelUnavailableError, TreeLimitError: the planning model could not be called.
    """
    turn = runtime.context
    if state.get("is_revised"):
        steps, outcomes = state["steps"], state["outcomes"]
        await _write_plan(turn, steps, [step for step in steps if step.id not in outcomes])
        return Command(goto="run")
    revision = turn.plan.revision
    result = PlanResult(state["steps"]) if state["steps"] else await _plan_request(turn)
    files = describe_files(turn.task.message)
    if not turn.task.text.strip():
        # It was planned by the names of its files.
        result = replace(result, steps=tuple(replace(step, text="") for step in result.steps))
    steps = _describe_steps(result.steps, files)
    if len(steps) > MAX_STEPS:
        await ask_user(turn, too_many_steps_question(len(steps)))
        return Command(goto=_END)
    if not steps:
        reason = "made no plan" if result.failure else "has a question"
        result.route.reasons.append(f"{turn.planner.name} {reason}")
        asked = (build_step(1, turn.task.text, result.route),)
        if result.written_text or turn.plan.revision != revision:
            # A part of the plan is published already, so complete it.
            await _write_plan(turn, asked, asked, written_text=result.written_text)
        else:
            await turn.task.record(*_route_events(asked))
        if result.failure is not None:
            raise result.failure
        await ask_user(turn, result.question)
        return Command(goto=_END)
    await _write_plan(turn, steps, steps, written_text=result.written_text)
    return Command(update={"steps": steps}, goto="run")


async def check_outcomes(
    state: SupervisorState, runtime: Runtime[SupervisorTurn]
) -> Command[Literal["plan", "synthesise"]]:
    """Revise the plan once, with the next best agents for failed steps."""
    retried_steps = () if state.get("is_revised") else _find_retries(state)
    if not retried_steps:
        return Command(goto="synthesise")
    retries = {step.id: step for step in retried_steps}
    steps = tuple(retries.get(step.id, step) for step in state["steps"])
    outcomes = {name: end for name, end in state["outcomes"].items() if name not in retries}
    update: SupervisorState = {"steps": steps, "outcomes": outcomes, "is_revised": True}
    return Command(update=update, goto="plan")


async def synthesise_answer(state: SupervisorState, runtime: Runtime[SupervisorTurn]) -> None:
    """Combine the outcomes, and end the turn with the answer."""
    turn, steps, outcomes = runtime.context, state["steps"], state["outcomes"]
    answer = combine_outcomes(steps, outcomes)
    await deliver_answer(turn, await rewrite_answer(turn, answer, steps, outcomes))


async def _plan_request(turn: SupervisorTurn) -> PlanResult:
    task, roster, planner = turn.task, turn.roster, turn.planner
    if unknown_name := roster.find_unknown_address(task.text):
        return PlanResult(question=f"No agent named {unknown_name!r} can be asked here.")
    if not roster.cards:
        return PlanResult(question="No agent is here to route to; start one and ask again.")
    request = task.text if task.text.strip() else describe_files(task.message)
    if not planner.is_model:
        return await planner.plan(request, roster, turn.plan)
    await task.working()
    last_agent = await find_last_agent(task, turn.directory, roster)
    earlier_messages = turn.memory.earlier_messages() if turn.memory is not None else ()
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.PLAN,
        telemetry.GEN_AI_AGENT_NAME: task.agent,
        telemetry.GEN_AI_CONVERSATION_ID: task.context_id,
    }
    with telemetry.span(f"{telemetry.PLAN} {task.agent}", attributes=attributes):
        return await planner.plan(
            request,
            roster,
            turn.plan,
            last_agent=last_agent,
            earlier_messages=earlier_messages,
            meter=task.meter,
        )


def _describe_steps(steps: Sequence[Step], files: str) -> tuple[Step, ...]:
    """Describe steps without text by the files that came with them."""
    return tuple(step if step.text.strip() else replace(step, plan_text=files) for step in steps)


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
    plan = event_pb2.PlanChanged(
        plan_id=plan_id,
        revision=revision,
        steps=build_plan_steps(steps),
        rewritten=turn.planner.is_model and len(steps) > 1,
    )
    await turn.task.record(
        *([plan_event(plan_id, revision, tokens)] if tokens else ()),
        event_pb2.Event(plan=plan),
        *_route_events(routed_steps),
    )
    turn.plan.start_revision()


def _find_retries(state: SupervisorState) -> Sequence[Step]:
    """Return the failed steps with other agents, and the steps that need them."""
    retries = {
        step.id: alternative
        for step in state["steps"]
        if (alternative := find_second_choice(step, state["outcomes"][step.id])) is not None
    }
    # A model's plan may list the steps in any order.
    blocked = list(retries)
    while blocked:
        needed = blocked.pop()
        for step in state["steps"]:
            if needed in step.needed_steps and step.id not in retries:
                retries[step.id] = step
                blocked.append(step.id)
    return tuple(retries.values())


def _route_events(steps: Sequence[Step]) -> list[event_pb2.Event]:
    return [event_pb2.Event(route_decided=step.route) for step in steps]
