"""The node `tools` of the reasoning loop: makes all tool calls of one reply concurrently.

If calls need a person's approval, or a tool asks, the turn ends with a question and the turn of the
answer starts here. The journal records the start of a call before the call is made. After a crash
an interrupted call is therefore known, and not repeated if that could do harm.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.runtime import Runtime

from trunkline.calls.tool_call import (
    InterruptedCall,
    Permission,
    ToolCalls,
    WantedCall,
    describe_failed_call,
    tool_label,
)
from trunkline.errors import TrunklineError
from trunkline.json_values import build_struct, has_same_json, struct_json
from trunkline.reasoning.call_approvals import request_approvals, sort_pending_calls
from trunkline.reasoning.tool_results import list_result_files, quote_sources, render_for_model
from trunkline.reasoning.turn import ReasoningState, ReasoningTurn, check_message_limit
from trunkline.reasoning.turn_result import ResultStatus
from trunkline.v1 import snapshot_pb2, tool_service_pb2

_SEARCHING = "Searching for information…"
_PROCESSING = "Processing the results…"


class InterruptedCalls:
    """The calls that earlier attempts at this turn started, from the journal."""

    def __init__(self, turn: ReasoningTurn, messages: Sequence[BaseMessage]) -> None:
        task = turn.task
        self._calls: list[snapshot_pb2.ToolCallInfo] = []
        if task.attempt > 1:
            self._calls = list(task.latest.tool_calls[len(task.snapshot.tool_calls) :])
        self._drop_answered(turn, messages)

    def pop_match(
        self, tool: tool_service_pb2.Tool, arguments: dict[str, object], approval_id: str
    ) -> snapshot_pb2.ToolCallInfo | None:
        """Remove and return an earlier call with the same arguments or approval, or None."""
        label = tool_label(tool)
        expected = build_struct(arguments)
        for call in self._calls:
            start = call.started
            is_match = start.tool == label and has_same_json(start.arguments, expected)
            if approval_id:
                is_match = start.call_id.partition("/")[0] == approval_id
            if is_match:
                self._calls.remove(call)
                return call
        return None

    def _drop_answered(self, turn: ReasoningTurn, messages: Sequence[BaseMessage]) -> None:
        """Drop calls whose results the model has: it may request the same call again."""
        if not self._calls:
            return
        result_ids = {
            message.tool_call_id for message in messages if isinstance(message, ToolMessage)
        }
        for message in messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                tool = turn.tools.find(call["name"])
                if tool is not None and call["id"] in result_ids:
                    self.pop_match(tool, call["args"], "")


async def call_tools(state: ReasoningState, runtime: Runtime[ReasoningTurn]) -> dict[str, Any]:
    """Add the results of the requested calls, or end the turn to ask for approval."""
    turn = runtime.context
    check_message_limit(turn, state)
    calls = ToolCalls(turn.task, turn.source, state.get("questions") or {}, render=_render)
    questions = calls.questions
    pending = sort_pending_calls(turn, state, calls)
    interrupted_calls = InterruptedCalls(turn, state["messages"])
    ready = [each for each in pending.ready if questions.allow(each[0]["id"] or "")]
    if ready:
        await turn.task.progress(_SEARCHING)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_call(turn, call, permission, interrupted_calls, calls))
            for call, permission in ready
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
    permission: Permission,
    interrupted_calls: InterruptedCalls,
    calls: ToolCalls,
) -> ToolMessage | None:
    """Make a call; return its result, or None if the tool asks."""
    tool = turn.tools.find(call["name"])
    if tool is None:
        return _build_failure(call, f"There is no tool {call['name']}.")
    wanted = WantedCall(
        tool,
        permission,
        call["id"] or "",
        call_id=permission.approval_id,
        earlier=interrupted_calls.pop_match(tool, call["args"], permission.approval_id),
        model_call_id=call["id"] or "",
    )
    try:
        outcome = await calls.make(wanted)
    except TrunklineError as error:
        return _build_failure(call, describe_failed_call(tool, error))
    match outcome:
        case None:
            return None
        case InterruptedCall(text, is_error):
            if is_error:
                return _build_failure(call, text)
            return ToolMessage(content=text, tool_call_id=call["id"] or "")
    text = _render(tool, outcome)
    if outcome.is_error:
        return _build_failure(call, text, is_mendable=outcome.is_mendable)
    turn.parts += list_result_files(outcome)
    artifact = {"structured": struct_json(outcome.structured_content)}
    return ToolMessage(content=text, tool_call_id=call["id"] or "", artifact=artifact)


def _render(tool: tool_service_pb2.Tool, result: tool_service_pb2.ToolResult) -> str:
    """Return the text of a result for the model."""
    text, label = render_for_model(result), tool_label(tool)
    if not result.is_error:
        return text or f"{label} answered with nothing."
    if result.is_mendable:
        return text or f"{label} can't do that."
    return f"{label} failed: {text or 'it does not say why.'}"


def _build_failure(call: ModelToolCall, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call["id"] or "",
        status="error",
        artifact={"is_mendable": is_mendable},
    )
