"""The reasoning loop as a LangGraph graph: agent, tools, agent, check, until there is a verdict.

Imports LangGraph, so load it lazily.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from trunkline.errors import TrunklineError
from trunkline.reasoning.calling import call_tools
from trunkline.reasoning.checking import check
from trunkline.reasoning.memory.conversation import Conversation
from trunkline.reasoning.memory.waiting import open_calls, waiting_of
from trunkline.reasoning.thinking import think
from trunkline.reasoning.tools.citing import sources_of
from trunkline.reasoning.turn import MESSAGE_LIMIT, State, Turn, last_reply, said_by_agent
from trunkline.reasoning.verdict import Status, Verdict, called_verdict
from trunkline.redaction import redact_addresses
from trunkline.tasks.content import message_text
from trunkline.v1 import message_pb2

__all__ = ["Graph", "Turn", "answer", "build_graph"]

_NO_TEXT: Final = "[The answer is no text.]"
_STOPPED: Final = "[This was stopped before it was answered.]"

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
    conversation = Conversation(turn.thread.file, turn.task) if turn.thread else None
    turn.before = [SystemMessage(prompt), *_before(turn, conversation)]
    # Each message takes at most two steps of LangGraph's own count.
    config: dict[str, Any] = {"recursion_limit": 3 * MESSAGE_LIMIT}
    state: dict[str, Any] | None = {"messages": question}
    if waited is not None:
        state = {"messages": question, "approvals": dict(waited.approvals)}
    if turn.thread is not None:
        graph = graph.copy({"checkpointer": turn.thread.checkpoints})
        config["configurable"] = {"thread_id": turn.thread.id}
        if turn.thread.state is not None:
            state = None
            turn.go_on(turn.thread.state)
    try:
        end = await graph.ainvoke(  # type: ignore[call-overload]
            state, config, context=turn, durability="sync" if turn.thread else None
        )
    except BaseException as error:
        if conversation is not None and not turn.task.is_lost:
            conversation.append(_cut_off(turn, question, error))
        raise
    verdict = _verdict_of(end)
    if verdict.status == Status.COMPLETED:
        said = [*turn.before, *end["messages"]]
        if sources := sources_of(said, turn.streamed, earlier=len(turn.before)):
            await turn.say(sources)
        await turn.finish()
    # What waits for approval is no exchange yet.
    if conversation is not None and not open_calls(end["messages"]):
        conversation.append(_ended(end["messages"], verdict))
    return verdict


# What decides is awaited: LangGraph would run anything else in a thread.
async def _after_agent(state: State) -> str:
    calls = last_reply(state).tool_calls
    return "tools" if calls and called_verdict(calls) is None else "check"


async def _at_start(state: State) -> str:
    return "tools" if open_calls(state["messages"]) else "agent"


async def _unless_over(state: State) -> str:
    return END if state.get("verdict") else "agent"


def _before(turn: Turn, conversation: Conversation | None) -> list[BaseMessage]:
    """Return what was said before this turn's question: in its context, and in its task."""
    before = conversation.before() if conversation else []
    if conversation is None or not conversation.has_own():
        before += _history(turn.task.history[: turn.history])
    return before


def _ended(messages: Sequence[BaseMessage], verdict: Verdict) -> Sequence[BaseMessage]:
    """Return what was said in a turn, with an answer at its end in any case."""
    if isinstance(messages[-1], AIMessage) and messages[-1].text:
        return messages
    return [*messages, said_by_agent(verdict.text or _NO_TEXT, verdict.status)]


def _cut_off(
    turn: Turn, question: Sequence[BaseMessage], error: BaseException
) -> Sequence[BaseMessage]:
    """Return what was said in a turn that was canceled or failed, as far as is known."""
    thread = turn.thread
    state = (thread.checkpoints.values(thread.id) if thread else None) or {}
    why = (
        f"This failed: {redact_addresses(error)}" if isinstance(error, TrunklineError) else _STOPPED
    )
    return [*(state.get("messages") or question), said_by_agent(why, Status.ERROR)]


def _verdict_of(end: Mapping[str, Any]) -> Verdict:
    found = end.get("verdict") or {"status": Status.ERROR, "text": "There is no answer."}
    return Verdict(Status(found["status"]), found["text"])


def _history(messages: Sequence[message_pb2.Message]) -> list[BaseMessage]:
    """Return earlier messages of the task as the model is shown them."""
    shown: list[BaseMessage] = []
    for message in messages:
        text = message_text(message)
        is_user = message.role == message_pb2.ROLE_USER
        shown.append(HumanMessage(text) if is_user else said_by_agent(text, Status.INPUT_REQUIRED))
    return shown
