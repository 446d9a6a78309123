"""Sorts the tool calls of a model's reply: call now, or wait for a person's approval.

Imports LangChain, so load it lazily.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from trunkline.calls.tool_call import Permission, ToolCalls
from trunkline.calls.tool_questions import PendingQuestion
from trunkline.reasoning.continuation import TurnContinuation, encode_continuation, find_open_calls
from trunkline.reasoning.turn import ReasoningState, ReasoningTurn
from trunkline.v1 import event_pb2, snapshot_pb2, tool_service_pb2


@dataclass(slots=True)
class PendingCalls:
    """The tool calls of a reply that have no result yet, sorted by what they need."""

    ready: list[tuple[ToolCall, Permission]] = field(default_factory=list)
    """Calls to make now, with their final arguments."""
    results: list[BaseMessage] = field(default_factory=list)
    """Results for rejected calls. If a person edited calls, the edited reply comes first."""
    awaiting_approval: list[ToolCall] = field(default_factory=list)
    """Calls that wait for a person's answer."""
    approvals: dict[str, str] = field(default_factory=dict)
    """The ids of the requested approvals, keyed by call id."""


def sort_pending_calls(
    turn: ReasoningTurn, state: ReasoningState, calls: ToolCalls
) -> PendingCalls:
    """Sort the open calls by the approval they need and the answers that people gave."""
    pending = PendingCalls(approvals=dict(state.get("approvals") or {}))
    edited: dict[str, ToolCall] = {}
    for call in find_open_calls(state["messages"]):
        tool = turn.tools.find(call["name"])
        if tool is None:
            pending.ready.append((call, Permission(call["args"])))
            continue
        approval = _find_approval(turn, pending, tool, call) if tool.needs_approval else None
        permission = calls.decide(tool, call["args"], approval)
        if permission is None:
            pending.awaiting_approval.append(call)
        elif not isinstance(permission, Permission):
            pending.results.append(_build_rejection_result(tool, call, permission))
        else:
            if permission.arguments is not call["args"]:
                call = {**call, "args": dict(permission.arguments)}
                edited[call["id"] or ""] = call
            pending.ready.append((call, permission))
    if edited:
        pending.results.insert(0, _build_edited_reply(state["messages"], edited))
    return pending


async def request_approvals(
    turn: ReasoningTurn,
    state: ReasoningState,
    pending: PendingCalls,
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


def _find_approval(
    turn: ReasoningTurn, pending: PendingCalls, tool: tool_service_pb2.Tool, call: ToolCall
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


def _build_rejection_result(
    tool: tool_service_pb2.Tool, call: ToolCall, answer: event_pb2.ApprovalAnswered
) -> ToolMessage:
    # Not marked as an error: the model would try to fix or work around an error.
    reason = f": {answer.reason}" if answer.reason else ""
    text = f"{tool.server}/{tool.name} was not called. It was rejected{reason.rstrip('.')}."
    return ToolMessage(content=text, tool_call_id=call["id"] or "")


def _build_edited_reply(
    messages: Sequence[BaseMessage], edited: Mapping[str, ToolCall]
) -> BaseMessage:
    """Return the model's reply with the arguments that a person edited."""
    reply = next(message for message in reversed(messages) if isinstance(message, AIMessage))
    calls = [edited.get(_call_key(call), call) for call in reply.tool_calls]
    return reply.model_copy(update={"tool_calls": calls})


def _merge_results(
    messages: Sequence[BaseMessage], results: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Append results to the messages. An edited reply replaces the original."""
    replacements = {message.id: message for message in results if isinstance(message, AIMessage)}
    merged = [replacements.get(message.id, message) for message in messages]
    return [*merged, *(message for message in results if not isinstance(message, AIMessage))]


def _call_key(call: ToolCall) -> str:
    return call["id"] or ""
