"""The supervisor as a LangGraph graph. Importing this module loads LangGraph."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from trunkline.supervisor import nodes
from trunkline.supervisor.nodes import SupervisorState
from trunkline.supervisor.running import Turn

SupervisorGraph: TypeAlias = CompiledStateGraph[
    SupervisorState, Turn, SupervisorState, SupervisorState
]
_Work: TypeAlias = Callable[[SupervisorState, Turn], Awaitable[SupervisorState]]


class _Node(Protocol):
    def __call__(
        self, state: SupervisorState, *, runtime: Runtime[Turn]
    ) -> Awaitable[SupervisorState]: ...


def compile_graph() -> SupervisorGraph:
    """Return the graph: analyse → plan → run → synthesise → check → deliver.

    What nobody can take is asked back, an answer to a waiting child is run without a plan, and a
    failed check plans once more. The graph keeps nothing: any number of turns may run in it.
    Everything in it is a coroutine function, since LangGraph runs plain functions in threads.
    """
    graph = StateGraph(SupervisorState, context_schema=Turn)
    for work in (
        nodes.analyse,
        nodes.ask_back,
        nodes.plan,
        nodes.run,
        nodes.synthesise,
        nodes.check,
        nodes.deliver,
    ):
        graph.add_node(work.__name__, _node(work))
    graph.add_conditional_edges(START, nodes.entry)
    graph.add_conditional_edges("analyse", nodes.after_analysis)
    graph.add_edge("ask_back", END)
    graph.add_edge("plan", "run")
    graph.add_edge("run", "synthesise")
    graph.add_edge("synthesise", "check")
    graph.add_conditional_edges("check", nodes.after_check)
    graph.add_edge("deliver", END)
    return graph.compile(name="supervisor")


def _node(work: _Work) -> _Node:
    async def node(state: SupervisorState, *, runtime: Runtime[Turn]) -> SupervisorState:
        return await work(state, runtime.context)

    return node
