"""The node `tools` of the reasoning loop: makes all tool calls of one reply concurrently.

If calls need a person's approval, the turn ends with a question and the turn of the answer starts
here. The journal records the start of a call before the call is made. After a crash an
interrupted call is therefore known, and not repeated if that could do harm.
"""

import asyncio
from typing import Any

from google.protobuf import json_format
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.runtime import Runtime
from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.calls.tool_call import (
    describe_interrupted_call,
    is_safe_to_repeat,
    may_have_run,
    record_tool_call,
    send_tool_call,
    tool_label,
)
from trunkline.errors import TrunklineError
from trunkline.reasoning.call_approvals import request_approvals, sort_pending_calls
from trunkline.reasoning.interrupted_calls import MAY_HAVE_RUN, InterruptedCalls
from trunkline.reasoning.tool_results import list_result_files, quote_sources, render_for_model
from trunkline.reasoning.turn import ReasoningState, ReasoningTurn, check_message_limit
from trunkline.reasoning.turn_result import ResultStatus
from trunkline.redaction import redact_addresses
from trunkline.v1 import tool_service_pb2

_SEARCHING = "Searching for information…"
_PROCESSING = "Processing the results…"


async def call_tools(state: ReasoningState, runtime: Runtime[ReasoningTurn]) -> dict[str, Any]:
    """Add the results of the requested calls, or end the turn to ask for approval."""
    turn = runtime.context
    check_message_limit(turn, state)
    pending = sort_pending_calls(turn, state)
    interrupted_calls = InterruptedCalls(turn, state["messages"])
    if pending.ready:
        await turn.task.progress(_SEARCHING)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_call(turn, call, approval_id, interrupted_calls))
            for call, approval_id in pending.ready
        ]
    results: list[BaseMessage] = [*pending.results, *(task.result() for task in tasks)]
    if not turn.model.is_rules:
        results = quote_sources([*turn.earlier_messages, *state["messages"]], results)
    update: dict[str, Any] = {"messages": results, "approvals": pending.approvals}
    if pending.awaiting_approval:
        await request_approvals(turn, state, pending, results)
        await turn.pause_answer()
        update["result"] = {"status": ResultStatus.INPUT_REQUIRED.value, "text": ""}
    else:
        await turn.task.progress(_PROCESSING)
    update["parts"] = [part.SerializeToString() for part in turn.parts]
    return update


async def _call(
    turn: ReasoningTurn, call: ModelToolCall, approval_id: str, interrupted_calls: InterruptedCalls
) -> ToolMessage:
    tool = turn.tools.find(call["name"])
    if tool is None:
        return _build_failure(call, f"There is no tool {call['name']}.")
    earlier_call = interrupted_calls.pop_match(tool, call["args"], approval_id)
    if earlier_call is not None and not is_safe_to_repeat(tool):
        text, has_failed = describe_interrupted_call(tool, earlier_call)
        if has_failed:
            return _build_failure(call, text)
        return ToolMessage(content=text, tool_call_id=call["id"] or "")
    suffix = f"/{turn.task.attempt}" if earlier_call is not None else ""
    async with record_tool_call(
        turn.task,
        tool,
        call["args"],
        call_id=f"{approval_id}{suffix}" if approval_id else "",
        approval_id=approval_id,
        model_call_id=call["id"] or "",
    ) as record:
        message = await _execute(turn, tool, call, record.span, approval_id)
        record.conclude(message.text, is_error=message.status == "error")
    return message


async def _execute(
    turn: ReasoningTurn,
    tool: tool_service_pb2.Tool,
    call: ModelToolCall,
    span: Span,
    approval_id: str,
) -> ToolMessage:
    label = tool_label(tool)
    try:
        result = await send_tool_call(
            turn.task, turn.source, tool, call["args"], approval_id=approval_id
        )
    except TrunklineError as error:
        telemetry.mark_error(span, error)
        problem = f"{label} failed: {redact_addresses(error)}."
        return _build_failure(
            call, f"{problem} {MAY_HAVE_RUN}" if may_have_run(tool, error) else problem
        )
    text = render_for_model(result)
    if result.is_error:
        telemetry.mark_error(span, telemetry.TOOL_ERROR)
        if result.is_mendable:
            return _build_failure(call, text or f"{label} can't do that.", is_mendable=True)
        return _build_failure(call, f"{label} failed: {text or 'it does not say why.'}")
    turn.parts += list_result_files(result)
    artifact = {"structured": json_format.MessageToDict(result.structured_content)}
    text = text or f"{label} answered with nothing."
    return ToolMessage(content=text, tool_call_id=call["id"] or "", artifact=artifact)


def _build_failure(call: ModelToolCall, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call["id"] or "",
        status="error",
        artifact={"is_mendable": is_mendable},
    )
