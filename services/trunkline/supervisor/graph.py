"""The supervisor as a LangGraph graph. Importing this module loads LangGraph."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from trunkline.supervisor import nodes
from trunkline.supervisor.nodes import NodeResult
from trunkline.supervisor.step_runner import SupervisorTurn
from trunkline.supervisor.steps import SupervisorState

SupervisorGraph: TypeAlias = CompiledStateGraph[
    SupervisorState, SupervisorTurn, SupervisorState, SupervisorState
]
_NodeFunction: TypeAlias = Callable[[SupervisorState, SupervisorTurn], Awaitable[NodeResult]]


class _Node(Protocol):
    def __call__(
        self, state: SupervisorState, *, runtime: Runtime[SupervisorTurn]
    ) -> Awaitable[Command[Any]]: ...


def compile_graph() -> SupervisorGraph:
    """Compile the graph: run → synthesise, and once more plan → run if steps failed.

    Its input is a plan, either new from `nodes.begin_turn` or of a recovered turn. It has no
    checkpointer, and any number of turns may run in it. It has few nodes, and each names the next
    one, because LangGraph takes 0.3 ms a node and 0.1 ms a conditional edge. All nodes are
    coroutine functions, because plain functions run in threads.
    """
    graph = StateGraph(SupervisorState, context_schema=SupervisorTurn)
    graph.add_node("run", _build_node(nodes.run_plan), destinations=("synthesise",))
    graph.add_node("synthesise", _build_node(nodes.synthesise_answer), destinations=("plan", END))
    graph.add_node("plan", _build_node(nodes.revise_plan), destinations=("run",))
    graph.add_edge(START, "run")
    return graph.compile(name="supervisor")


def _build_node(work: _NodeFunction) -> _Node:
    async def node(state: SupervisorState, *, runtime: Runtime[SupervisorTurn]) -> Command[Any]:
        update, goto = await work(state, runtime.context)
        return Command(update=update, goto=END if goto == "end" else goto)

    return node
