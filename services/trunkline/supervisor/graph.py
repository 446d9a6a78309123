"""The supervisor as a LangGraph graph. Importing this module loads LangGraph."""

from typing import TypeAlias

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from trunkline.supervisor import nodes
from trunkline.supervisor.steps import SupervisorState
from trunkline.supervisor.turn import SupervisorTurn

SupervisorGraph: TypeAlias = CompiledStateGraph[
    SupervisorState, SupervisorTurn, SupervisorState, SupervisorState
]


def compile_graph() -> SupervisorGraph:
    """Compile the graph: analyse → plan → run, once for each step → check → synthesise.

    Each node names the next ones in its `Command`, because a conditional edge costs another 0.1 ms.
    All nodes are coroutine functions, because plain functions run in threads. The graph has no
    checkpointer, since the journal has all that a turn needs, and any number of turns may run in
    it. docs/supervisors.md has its drawing.
    """
    graph = StateGraph(SupervisorState, context_schema=SupervisorTurn)
    graph.add_node("analyse", nodes.analyse_request)
    graph.add_node("plan", nodes.plan_steps)
    graph.add_node("run", nodes.run_step)
    graph.add_node("check", nodes.check_outcomes)
    graph.add_node("synthesise", nodes.synthesise_answer)
    graph.add_edge(START, "analyse")
    # All steps of the plan join here.
    graph.add_edge("run", "check")
    return graph.compile(name="supervisor")


async def run_turn(
    graph: SupervisorGraph, turn: SupervisorTurn, recovered: SupervisorState | None = None
) -> None:
    """Run a turn to its end, or to a question to the user.

    `recovered` is the state of a turn whose host was lost, if the turn had a plan.
    """
    # No stream modes: readers follow the journal.
    async for _ in graph.astream(recovered or {"steps": ()}, context=turn, stream_mode=[]):
        pass
