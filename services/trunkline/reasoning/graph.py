"""The reasoning loop as a LangGraph graph: agent, tools, agent, check, until there is a verdict.

Imports LangGraph, so load it lazily.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from trunkline.reasoning.calling import call_tools
from trunkline.reasoning.checking import check
from trunkline.reasoning.thinking import think
from trunkline.reasoning.turn import MESSAGE_LIMIT, State, Turn, last_reply
from trunkline.reasoning.verdict import Status, Verdict
from trunkline.reasoning.waiting import open_calls, waiting_of
from trunkline.v1 import message_pb2

__all__ = ["Graph", "Turn", "answer", "build_graph"]

Graph = CompiledStateGraph[State, Turn, State, State]


def build_graph() -> Graph:
    """Return the loop, ready to run for any agent and model."""
    graph = StateGraph(State, context_schema=Turn)
    graph.add_node("agent", think)
    graph.add_node("tools", call_tools)
    graph.add_node("check", check)
    # A question whose calls waited for approval goes on with those.
    graph.add_conditional_edges(START, _at_start, ["agent", "tools"])
    graph.add_conditional_edges("agent", _after_agent, ["tools", "check"])
    graph.add_conditional_edges("tools", _unless_over, ["agent", END])
    graph.add_conditional_edges("check", _unless_over, ["agent", END])
    return graph.compile()


async def answer(graph: Graph, turn: Turn, prompt: str) -> Verdict:
    """Run a turn's question through the loop. What is completed has been streamed and closed.

    A turn that a checkpoint was found of goes on from there.

    Raises:
        StepLimitError: there was no answer within the limit.
    """
    waited = waiting_of(turn.task)
    question = waited.messages if waited else [HumanMessage(turn.task.text)]
    turn.history = waited.history if waited else len(turn.task.history) - 1
    earlier = [SystemMessage(prompt), *_history(turn.task.history[: turn.history])]
    turn.earlier = len(earlier)
    # Each message takes at most two steps of LangGraph's own count.
    config: dict[str, Any] = {"recursion_limit": 3 * MESSAGE_LIMIT}
    state: dict[str, Any] | None = {"messages": [*earlier, *question]}
    if state is not None and waited is not None:
        state["approvals"] = dict(waited.approvals)
    if turn.thread is not None:
        graph = graph.copy({"checkpointer": turn.thread.checkpoints})
        config["configurable"] = {"thread_id": turn.thread.id}
        if turn.thread.state is not None:
            state = None
            turn.go_on(turn.thread.state)
    end = await graph.ainvoke(  # type: ignore[call-overload]
        state, config, context=turn, durability="sync" if turn.thread else None
    )
    verdict = _verdict_of(end)
    if verdict.status == Status.COMPLETED:
        await turn.finish()
    return verdict


def _after_agent(state: State) -> str:
    return "tools" if last_reply(state).tool_calls else "check"


def _at_start(state: State) -> str:
    return "tools" if open_calls(state["messages"]) else "agent"


def _unless_over(state: State) -> str:
    return END if state.get("verdict") else "agent"


def _verdict_of(end: Mapping[str, Any]) -> Verdict:
    found = end.get("verdict") or {"status": Status.ERROR, "text": "There is no answer."}
    return Verdict(Status(found["status"]), found["text"])


def _history(messages: Sequence[message_pb2.Message]) -> list[BaseMessage]:
    """Return earlier messages of the task as the model is shown them."""
    shown: list[BaseMessage] = []
    for message in messages:
        text = " ".join(part.text for part in message.parts if part.HasField("text"))
        is_user = message.role == message_pb2.ROLE_USER
        shown.append(HumanMessage(text) if is_user else AIMessage(text))
    return shown
