"""The node `tools` of the reasoning loop: makes all tool calls of one reply concurrently.

If calls need a person's approval, or a tool asks, the turn ends with a question and the turn of the
answer starts here. The journal records the start of a call before the call is made. After a crash
an interrupted call is therefore known, and not repeated if that could do harm.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.runtime import Runtime

from trunkline.agents.calls.tool_call import (
    InterruptedCall,
    Permission,
    ToolCalls,
    WantedCall,
    describe_failed_call,
    tool_label,
)
from trunkline.agents.calls.tool_questions import PendingQuestion
from trunkline.agents.reasoning.continuation import (
    TurnContinuation,
    encode_continuation,
    find_open_calls,
)
from trunkline.agents.reasoning.tool_results import (
    list_result_files,
    quote_sources,
    render_for_model,
)
from trunkline.agents.reasoning.turn import ReasoningState, ReasoningTurn, check_message_limit
from trunkline.agents.reasoning.turn_result import ResultStatus
from trunkline.core.json_values import build_struct, has_same_json, struct_json
from trunkline.errors import TrunklineError
from trunkline.v1 import event_pb2, snapshot_pb2, tool_service_pb2

_SEARCHING = "Searching for information…"
_PROCESSING = "Processing the results…"


async def call_tools(state: ReasoningState, runtime: Runtime[ReasoningTurn]) -> dict[str, Any]:
    """Add the results of the requested calls, or end the turn to ask for approval."""
    turn = runtime.context
    check_message_limit(turn, state)
    calls = ToolCalls(turn.task, turn.source, state.get("questions") or {}, render=_render)
    questions = calls.questions
    pending = _sort_pending_calls(turn, state, calls)
    if pending.ready:
        await turn.task.progress(_SEARCHING)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_call(turn, wanted, calls)) for wanted in pending.ready]
    made = [message for task in tasks if (message := task.result()) is not None]
    results = _order_results(state["messages"], [*pending.results, *made])
    if not turn.model.is_rules:
        results = quote_sources([*turn.earlier_messages, *state["messages"]], results)
    update: dict[str, Any] = {"messages": results, "approvals": pending.approvals}
    update["questions"] = questions.open
    if pending.awaiting_approval or questions.open:
        await _request_approvals(turn, state, pending, results, questions.open)
        await turn.pause_answer()
        update["result"] = {"status": ResultStatus.INPUT_REQUIRED.value, "text": ""}
    else:
        await turn.task.progress(_PROCESSING)
    update["parts"] = [part.SerializeToString() for part in turn.parts]
    return update


async def _call(turn: ReasoningTurn, wanted: WantedCall, calls: ToolCalls) -> ToolMessage | None:
    """Make a call; return its result, or None if the tool asks."""
    tool = wanted.tool
    try:
        outcome = await calls.make(wanted)
    except TrunklineError as error:
        return _build_failure(wanted.key, describe_failed_call(tool, error))
    match outcome:
        case None:
            return None
        case InterruptedCall(text, is_error):
            if is_error:
                return _build_failure(wanted.key, text)
            return ToolMessage(content=text, tool_call_id=wanted.key)
    text = _render(tool, outcome)
    if outcome.is_error:
        return _build_failure(wanted.key, text, is_mendable=outcome.is_mendable)
    turn.parts += list_result_files(outcome)
    artifact = {"structured": struct_json(outcome.structured_content)}
    return ToolMessage(content=text, tool_call_id=wanted.key, artifact=artifact)


@dataclass(slots=True)
class _PendingCalls:
    """The tool calls of a reply that have no result yet, sorted by what they need."""

    ready: list[WantedCall] = field(default_factory=list)
    """Calls to make now, with their final arguments."""
    results: list[BaseMessage] = field(default_factory=list)
    """Results for calls that are not made. If a person edited calls, the edited reply comes
    first."""
    awaiting_approval: list[ModelToolCall] = field(default_factory=list)
    """Calls that wait for a person's answer."""
    approvals: dict[str, str] = field(default_factory=dict)
    """The ids of the requested approvals, keyed by call id."""


def _sort_pending_calls(
    turn: ReasoningTurn, state: ReasoningState, calls: ToolCalls
) -> _PendingCalls:
    """Sort the open calls by the approval they need and the answers that people gave.

    Calls whose questions remain open are in `calls.questions` only.
    """
    pending = _PendingCalls(approvals=dict(state.get("approvals") or {}))
    interrupted_calls = _InterruptedCalls(turn, state["messages"])
    edited: dict[str, ModelToolCall] = {}
    for call in find_open_calls(state["messages"]):
        tool = turn.tools.find(call["name"])
        if tool is None:
            problem = f"There is no tool {call['name']}."
            pending.results.append(_build_failure(_call_key(call), problem))
            continue
        approval = _find_approval(turn, pending, tool, call) if tool.needs_approval else None
        permission = calls.decide(tool, call["args"], approval)
        if permission is None:
            pending.awaiting_approval.append(call)
        elif not isinstance(permission, Permission):
            pending.results.append(_build_rejection_result(tool, call, permission))
        else:
            arguments, approval_id = dict(permission.arguments), permission.approval_id
            if permission.arguments is not call["args"]:
                edited[_call_key(call)] = {**call, "args": arguments}
            # A call that is not made now must not take the record of an equal call.
            if not calls.questions.allow(_call_key(call)):
                continue
            wanted = WantedCall(
                tool,
                permission,
                _call_key(call),
                call_id=approval_id,
                earlier=interrupted_calls.pop_match(tool, arguments, approval_id),
                model_call_id=_call_key(call),
            )
            pending.ready.append(wanted)
    if edited:
        pending.results.insert(0, _build_edited_reply(state["messages"], edited))
    return pending


class _InterruptedCalls:
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


def _find_approval(
    turn: ReasoningTurn, pending: _PendingCalls, tool: tool_service_pb2.Tool, call: ModelToolCall
) -> snapshot_pb2.ApprovalInfo | None:
    """Return the approval of a call. An approval requested by an interrupted attempt counts."""
    pending_approvals = turn.task.pending_approvals
    if (approval_id := pending.approvals.get(_call_key(call))) is not None:
        return pending_approvals.find(approval_id)
    if turn.task.attempt == 1:
        return None
    approval = pending_approvals.find_call(f"{tool.server}/{tool.name}", call["args"])
    # An approval of an earlier turn belongs to a call of that turn.
    earlier = [info.requested.approval_id for info in turn.task.snapshot.approvals]
    used_ids = {*earlier, *pending.approvals.values()}
    if approval is None or approval.requested.approval_id in used_ids:
        return None
    pending.approvals[_call_key(call)] = approval.requested.approval_id
    return approval


async def _request_approvals(
    turn: ReasoningTurn,
    state: ReasoningState,
    pending: _PendingCalls,
    results: Sequence[BaseMessage],
    questions: Mapping[str, PendingQuestion],
) -> None:
    """Request missing approvals, and save the state that the turn of the answer continues from.

    `questions` of tools wait for the same answer.
    """
    events = []
    for call in pending.awaiting_approval:
        if _call_key(call) not in pending.approvals:
            tool = turn.tools.find(call["name"])
            label = f"{tool.server}/{tool.name}" if tool else call["name"]
            event = turn.task.pending_approvals.request(label, call["args"])
            pending.approvals[_call_key(call)] = event.approval_requested.approval_id
            events.append(event)
    if events:
        await turn.task.record(*events)
    messages = _merge_results(state["messages"], results)
    turn.task.pending_approvals.continuation = encode_continuation(
        TurnContinuation(messages, pending.approvals, turn.earlier_count, questions)
    )


def _build_rejection_result(
    tool: tool_service_pb2.Tool, call: ModelToolCall, answer: event_pb2.ApprovalAnswered
) -> ToolMessage:
    # Not marked as an error: the model would try to fix or work around an error.
    reason = f": {answer.reason}" if answer.reason else ""
    text = f"{tool.server}/{tool.name} was not called. It was rejected{reason.rstrip('.')}."
    return ToolMessage(content=text, tool_call_id=call["id"] or "")


def _build_edited_reply(
    messages: Sequence[BaseMessage], edited: Mapping[str, ModelToolCall]
) -> BaseMessage:
    """Return the model's reply with the arguments that a person edited."""
    reply = next(message for message in reversed(messages) if isinstance(message, AIMessage))
    calls = [edited.get(_call_key(call), call) for call in reply.tool_calls]
    return reply.model_copy(update={"tool_calls": calls})


def _order_results(
    messages: Sequence[BaseMessage], results: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Return results in the order of the model's calls, behind an edited reply."""
    call_ids = [_call_key(call) for call in find_open_calls(messages)]

    def position(result: BaseMessage) -> int:
        return call_ids.index(result.tool_call_id) if isinstance(result, ToolMessage) else -1

    return sorted(results, key=position)


def _merge_results(
    messages: Sequence[BaseMessage], results: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Append results to the messages. An edited reply replaces the original."""
    replacements = {message.id: message for message in results if isinstance(message, AIMessage)}
    merged = [replacements.get(message.id, message) for message in messages]
    return [*merged, *(message for message in results if not isinstance(message, AIMessage))]


def _render(tool: tool_service_pb2.Tool, result: tool_service_pb2.ToolResult) -> str:
    """Return the text of a result for the model."""
    text, label = render_for_model(result), tool_label(tool)
    if not result.is_error:
        return text or f"{label} answered with nothing."
    if result.is_mendable:
        return text or f"{label} can't do that."
    return f"{label} failed: {text or 'it does not say why.'}"


def _build_failure(call_id: str, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call_id,
        status="error",
        artifact={"is_mendable": is_mendable},
    )


def _call_key(call: ModelToolCall) -> str:
    return call["id"] or ""
