"""The node `agent` of the reasoning loop: asks the model, and streams what it answers."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langgraph.runtime import Runtime
from opentelemetry.trace import SpanKind

from trunkline import telemetry
from trunkline.reasoning.turn import State, Turn, check_room, status_of
from trunkline.reasoning.verdict import Status


async def think(state: State, runtime: Runtime[Turn]) -> dict[str, Any]:
    """Add the model's reply."""
    turn = runtime.context
    check_room(turn, state, 1)
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.CHAT,
        telemetry.GEN_AI_PROVIDER_NAME: turn.model_name.partition(":")[0],
        telemetry.GEN_AI_REQUEST_MODEL: turn.model_name,
    }
    name = f"{telemetry.CHAT} {turn.model_name}"
    with telemetry.span(name, kind=SpanKind.CLIENT, attributes=attributes):
        reply = await _ask(turn, state["messages"])
    return {"messages": [reply], "written": await turn.written()}


async def _ask(turn: Turn, messages: Sequence[BaseMessage]) -> BaseMessage:
    """Ask the model, and stream what it says as it says it, if that is an answer."""
    specs = turn.tools.specs(with_metadata=turn.model_name == "rules")
    model = turn.model.bind_tools(specs)
    whole: AIMessageChunk | None = None
    async for chunk in model.astream(list(messages)):
        if not isinstance(chunk, AIMessageChunk):
            continue
        whole = chunk if whole is None else whole + chunk
        if chunk.text and status_of(whole) == Status.COMPLETED:
            await turn.say(chunk.text)
    return whole if whole is not None else AIMessage("")
