"""The reasoning loop as a LangGraph graph: agent, tools, agent, check, until there is a result.

Imports LangGraph, so load it lazily.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from trunkline.agents.reasoning.continuation import decode_continuation, find_open_calls
from trunkline.agents.reasoning.conversation import ConversationHistory
from trunkline.agents.reasoning.model_nodes import call_model, check_answer
from trunkline.agents.reasoning.tool_node import call_tools
from trunkline.agents.reasoning.turn import (
    MESSAGE_LIMIT,
    ReasoningState,
    ReasoningTurn,
    build_agent_message,
    get_last_reply,
)
from trunkline.agents.reasoning.turn_result import ResultStatus, TurnResult, find_result_call
from trunkline.core.redaction import redact_addresses
from trunkline.errors import TrunklineError
from trunkline.tasks.content import message_text
from trunkline.v1 import message_pb2

__all__ = ["ReasoningGraph", "ReasoningTurn", "build_graph", "run_turn"]

_NO_TEXT: Final = "[The answer is no text.]"
_STOPPED: Final = "[This was stopped before it was answered.]"

ReasoningGraph = CompiledStateGraph[ReasoningState, ReasoningTurn, ReasoningState, ReasoningState]


def build_graph() -> ReasoningGraph:
    """Compile the loop. One graph serves any agent and model."""
    graph = StateGraph(ReasoningState, context_schema=ReasoningTurn)
    graph.add_node("agent", call_model)
    graph.add_node("tools", call_tools)
    graph.add_node("check", check_answer)
    # A question whose calls waited for approval resumes with those calls.
    graph.add_conditional_edges(START, _route_start, ["agent", "tools"])
    graph.add_conditional_edges("agent", _route_reply, ["tools", "check"])
    graph.add_conditional_edges("tools", _route_result, ["agent", END])
    graph.add_conditional_edges("check", _route_result, ["agent", END])
    return graph.compile()


async def run_turn(graph: ReasoningGraph, turn: ReasoningTurn, prompt: str) -> TurnResult:
    """Answer a turn's question. A completed answer has been streamed and closed.

    Resumes from the turn's checkpoint if there is one.

    Raises:
        StepLimitError: the turn reached its message limit without an answer.
    """
    continuation = decode_continuation(turn.task.snapshot)
    question = continuation.messages if continuation else [HumanMessage(turn.task.text)]
    turn.earlier_count = continuation.earlier_count if continuation else len(turn.task.history) - 1
    conversation = await ConversationHistory.load(turn.task)
    turn.earlier_messages = [SystemMessage(prompt), *_load_earlier_messages(turn, conversation)]
    # Each message takes at most two LangGraph steps.
    config: dict[str, Any] = {"recursion_limit": 3 * MESSAGE_LIMIT}
    state: dict[str, Any] | None = {"messages": question}
    if continuation is not None:
        state = {
            "messages": question,
            "approvals": dict(continuation.approvals),
            "questions": dict(continuation.questions),
        }
    graph = graph.copy({"checkpointer": turn.checkpoints.saver})
    config["configurable"] = {"thread_id": turn.checkpoints.thread_id}
    if turn.checkpoints.state is not None:
        state = None
        turn.restore(turn.checkpoints.state)
    try:
        end = await graph.ainvoke(  # type: ignore[call-overload]
            state, config, context=turn, durability="sync"
        )
    except BaseException as error:
        if not turn.task.is_lost:
            await conversation.append(await _build_interrupted_messages(turn, question, error))
        raise
    result = _read_result(end)
    if result.status == ResultStatus.COMPLETED:
        await turn.finish_answer(end["messages"])
    # A turn that waits for approval is not a finished exchange yet.
    if not find_open_calls(end["messages"]):
        await conversation.append(_build_final_messages(end["messages"], result))
    return result


# These are coroutines because LangGraph runs plain functions in threads.
async def _route_reply(state: ReasoningState) -> str:
    calls = get_last_reply(state).tool_calls
    return "tools" if calls and find_result_call(calls) is None else "check"


async def _route_start(state: ReasoningState) -> str:
    return "tools" if find_open_calls(state["messages"]) else "agent"


async def _route_result(state: ReasoningState) -> str:
    return END if state.get("result") else "agent"


def _load_earlier_messages(
    turn: ReasoningTurn, conversation: ConversationHistory
) -> list[BaseMessage]:
    """Return the messages before this turn's question, of its context and its task."""
    messages = conversation.earlier_messages()
    if not conversation.has_own_turns():
        messages += _convert_history(turn.task.history[: turn.earlier_count])
    return messages


def _build_final_messages(
    messages: Sequence[BaseMessage], result: TurnResult
) -> Sequence[BaseMessage]:
    """Return the messages of a turn, with an answer as the last one."""
    if isinstance(messages[-1], AIMessage) and messages[-1].text:
        return messages
    return [*messages, build_agent_message(result.text or _NO_TEXT, result.status)]


async def _build_interrupted_messages(
    turn: ReasoningTurn, question: Sequence[BaseMessage], error: BaseException
) -> Sequence[BaseMessage]:
    """Return the known messages of a turn that was canceled or failed."""
    state = await turn.checkpoints.saver.load_state(turn.checkpoints.thread_id) or {}
    reason = (
        f"This failed: {redact_addresses(error)}" if isinstance(error, TrunklineError) else _STOPPED
    )
    return [*(state.get("messages") or question), build_agent_message(reason, ResultStatus.ERROR)]


def _read_result(end: Mapping[str, Any]) -> TurnResult:
    result = end.get("result") or {"status": ResultStatus.ERROR, "text": "There is no answer."}
    status = ResultStatus(result["status"])
    questions = tuple((end.get("questions") or {}).values())
    return TurnResult(
        status, result["text"], questions if status == ResultStatus.INPUT_REQUIRED else ()
    )


def _convert_history(messages: Sequence[message_pb2.Message]) -> list[BaseMessage]:
    """Convert the task's earlier messages to the model's."""
    converted: list[BaseMessage] = []
    for message in messages:
        text = message_text(message)
        is_user = message.role == message_pb2.ROLE_USER
        converted.append(
            HumanMessage(text)
            if is_user
            else build_agent_message(text, ResultStatus.INPUT_REQUIRED)
        )
    return converted
