"""The node `tools` of the reasoning loop: makes all tool calls of one reply concurrently.

If calls need a person's approval, or a tool asks, the turn ends with a question and the turn of the
answer starts here. The journal records the start of a call before the call is made. After a crash
an interrupted call is therefore known, and not repeated if that could do harm.
"""

import asyncio
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.runtime import Runtime

from trunkline import telemetry
from trunkline.calls.tool_call import (
    RecordedCall,
    describe_interrupted_call,
    may_have_run,
    may_repeat,
    record_tool_call,
    send_tool_call,
    tool_label,
)
from trunkline.calls.tool_questions import ToolQuestions
from trunkline.errors import TrunklineError
from trunkline.json_values import struct_json
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
    questions = ToolQuestions(turn.task, state.get("questions") or {})
    ready = [each for each in pending.ready if questions.allow(each[0]["id"] or "")]
    if ready:
        await turn.task.progress(_SEARCHING)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_call(turn, call, approval_id, interrupted_calls, questions))
            for call, approval_id in ready
        ]
    results: list[BaseMessage] = [
        *pending.results,
        *(message for task in tasks if (message := task.result()) is not None),
    ]
    if not turn.model.is_rules:
        results = quote_sources([*turn.earlier_messages, *state["messages"]], results)
    update: dict[str, Any] = {"messages": results, "approvals": pending.approvals}
    update["questions"] = questions.open
    if pending.awaiting_approval or questions.open:
        await request_approvals(turn, state, pending, results, questions.open)
        await turn.pause_answer()
        update["result"] = {"status": ResultStatus.INPUT_REQUIRED.value, "text": ""}
    else:
        await turn.task.progress(_PROCESSING)
    update["parts"] = [part.SerializeToString() for part in turn.parts]
    return update


async def _call(
    turn: ReasoningTurn,
    call: ModelToolCall,
    approval_id: str,
    interrupted_calls: InterruptedCalls,
    questions: ToolQuestions,
) -> ToolMessage | None:
    """Make a call; return its result, or None if the tool asks."""
    tool = turn.tools.find(call["name"])
    if tool is None:
        return _build_failure(call, f"There is no tool {call['name']}.")
    earlier_call = interrupted_calls.pop_match(tool, call["args"], approval_id)
    continuation = questions.find_continuation(call["id"] or "", earlier_call)
    # Following a task again does nothing twice.
    is_task = continuation is not None and bool(continuation.task_handle)
    if earlier_call is not None and not is_task and not may_repeat(tool, earlier_call):
        text, has_failed = describe_interrupted_call(tool, earlier_call)
        if has_failed:
            return _build_failure(call, text)
        return ToolMessage(content=text, tool_call_id=call["id"] or "")
    is_again = earlier_call is not None or continuation is not None
    suffix = f"/{turn.task.turn}.{turn.task.attempt}" if is_again else ""
    async with record_tool_call(
        turn.task,
        tool,
        call["args"],
        call_id=f"{approval_id}{suffix}" if approval_id else "",
        approval_id=approval_id,
        model_call_id=call["id"] or "",
    ) as record:
        message = await _execute(turn, call, record, continuation)
        if isinstance(message, tool_service_pb2.ToolQuestion):
            questions.add(call["id"] or "", tool_label(tool), message)
            record.conclude_question()
            return None
        record.conclude(message.text, is_error=message.status == "error")
    return message


async def _execute(
    turn: ReasoningTurn,
    call: ModelToolCall,
    record: RecordedCall,
    continuation: tool_service_pb2.ToolContinuation | None,
) -> ToolMessage | tool_service_pb2.ToolQuestion:
    tool, label = record.tool, tool_label(record.tool)
    try:
        result = await send_tool_call(turn.task, turn.source, record, continuation)
    except TrunklineError as error:
        telemetry.mark_error(record.span, error)
        problem = f"{label} failed: {redact_addresses(error)}."
        return _build_failure(
            call, f"{problem} {MAY_HAVE_RUN}" if may_have_run(tool, error) else problem
        )
    if result.HasField("question"):
        return result.question
    text = render_for_model(result)
    if result.is_error:
        telemetry.mark_error(record.span, telemetry.TOOL_ERROR)
        if result.is_mendable:
            return _build_failure(call, text or f"{label} can't do that.", is_mendable=True)
        return _build_failure(call, f"{label} failed: {text or 'it does not say why.'}")
    turn.parts += list_result_files(result)
    artifact = {"structured": struct_json(result.structured_content)}
    text = text or f"{label} answered with nothing."
    return ToolMessage(content=text, tool_call_id=call["id"] or "", artifact=artifact)


def _build_failure(call: ModelToolCall, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call["id"] or "",
        status="error",
        artifact={"is_mendable": is_mendable},
    )
