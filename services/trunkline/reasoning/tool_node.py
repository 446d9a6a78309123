"""The node `tools` of the reasoning loop: makes all tool calls of one reply concurrently.

If calls need a person's approval, or a tool asks, the turn ends with a question and the turn of the
answer starts here. The journal records the start of a call before the call is made. After a crash
an interrupted call is therefore known, and not repeated if that could do harm.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format, timestamp_pb2
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.runtime import Runtime
from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.reasoning.call_approvals import request_approvals, sort_pending_calls
from trunkline.reasoning.interrupted_calls import (
    MAY_HAVE_RUN,
    SUMMARY_CHARS,
    InterruptedCalls,
    describe_interrupted_call,
    is_safe_to_repeat,
    may_have_run,
)
from trunkline.reasoning.tool_questions import (
    PendingQuestion,
    build_continuation,
    build_pending,
    read_answer,
)
from trunkline.reasoning.tool_results import list_result_files, quote_sources, render_for_model
from trunkline.reasoning.tool_source import ToolSource
from trunkline.reasoning.turn import ReasoningState, ReasoningTurn, check_message_limit
from trunkline.reasoning.turn_result import ResultStatus
from trunkline.redaction import redact_addresses
from trunkline.tasks.content import exact_json
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, snapshot_pb2, tool_service_pb2

logger = logging.getLogger(__name__)

# An MCP server has this long to take the cancel of a task.
_CANCEL_S = 2.0
_SEARCHING = "Searching for information…"
_PROCESSING = "Processing the results…"


async def call_tools(state: ReasoningState, runtime: Runtime[ReasoningTurn]) -> dict[str, Any]:
    """Add the results of the requested calls, or end the turn to ask for approval."""
    turn = runtime.context
    check_message_limit(turn, state)
    pending = sort_pending_calls(turn, state)
    interrupted_calls = InterruptedCalls(turn, state["messages"])
    questions = _Questions(turn, state.get("questions") or {})
    ready = [(call, approval_id) for call, approval_id in pending.ready if questions.allow(call)]
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


class _Questions:
    """The questions of tools: those that this turn's message answers, and those that are open."""

    def __init__(self, turn: ReasoningTurn, asked: Mapping[str, PendingQuestion]) -> None:
        self.open: dict[str, PendingQuestion] = {}
        """Questions that wait for another turn, keyed by the model's ids of the calls."""
        self._asked = asked
        self._message = turn.task.message
        decided = turn.task.pending_approvals.answers(since=turn.task.turn)
        self._is_for_approvals = any(answer.turn == turn.task.turn for answer in decided)
        self._continuations: dict[str, tool_service_pb2.ToolContinuation] = {}

    def allow(self, call: ModelToolCall) -> bool:
        """Return whether a call can be made: it has no question, or this turn answers it."""
        call_id = call["id"] or ""
        question = self._asked.get(call_id)
        if question is None:
            return True
        answer = read_answer(question, self._message)
        if self._is_for_approvals or answer.missing:
            self.open[call_id] = question
            return False
        self._continuations[call_id] = build_continuation(question, answer.responses)
        return True

    def find_continuation(
        self, call: ModelToolCall, earlier: snapshot_pb2.ToolCallInfo | None
    ) -> tool_service_pb2.ToolContinuation | None:
        """Return how a call goes on that asked, or that became a task; None: it does neither."""
        answered = self._continuations.get(call["id"] or "")
        handle = earlier.task_handle if earlier is not None else ""
        if handle and not (answered and answered.task_handle):
            return tool_service_pb2.ToolContinuation(task_handle=handle)
        return answered


async def _call(
    turn: ReasoningTurn,
    call: ModelToolCall,
    approval_id: str,
    interrupted_calls: InterruptedCalls,
    questions: _Questions,
) -> ToolMessage | None:
    """Make a call; return its result, or None if the tool asks."""
    tool = turn.tools.find(call["name"])
    if tool is None:
        return _build_failure(call, f"There is no tool {call['name']}.")
    earlier_call = interrupted_calls.pop_match(tool, call["args"], approval_id)
    continuation = questions.find_continuation(call, earlier_call)
    # Following a task again does nothing twice.
    is_task = continuation is not None and bool(continuation.task_handle)
    if earlier_call is not None and not is_task and not is_safe_to_repeat(tool):
        text, has_failed = describe_interrupted_call(tool, earlier_call)
        if has_failed:
            return _build_failure(call, text)
        return ToolMessage(content=text, tool_call_id=call["id"] or "")
    label = f"{tool.server}/{tool.name}"
    await turn.task.progress(f"Calling {label}…")
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.EXECUTE_TOOL,
        telemetry.GEN_AI_TOOL_NAME: tool.name,
        telemetry.GEN_AI_TOOL_CALL_ID: call["id"] or "",
        telemetry.TOOL_SERVER: tool.server,
    }
    if approval_id:
        attributes[telemetry.APPROVAL_ID] = approval_id
    is_again = earlier_call is not None or continuation is not None
    suffix = f"/{turn.task.turn}.{turn.task.attempt}" if is_again else ""
    call_id = f"{approval_id}{suffix}" if approval_id else ""
    async with turn.task.tool(label, call["args"], id=call_id) as record:
        if not tool.read_only:
            await turn.task.flush()
        with telemetry.span(f"{telemetry.EXECUTE_TOOL} {tool.name}", attributes=attributes) as span:
            request = _build_request(turn.task, tool, call["args"])
            if continuation is not None:
                request.continuation.CopyFrom(continuation)
            _add_approval(turn.task, request, approval_id)
            message = await _execute(turn, tool, call, span, request, record.id)
        if isinstance(message, tool_service_pb2.ToolQuestion):
            questions.open[call["id"] or ""] = build_pending(label, message)
            record.summary = "It asks."
            return None
        record.is_error = message.status == "error"
        record.summary = " ".join(message.text.split())[:SUMMARY_CHARS]
    return message


async def _execute(
    turn: ReasoningTurn,
    tool: tool_service_pb2.Tool,
    call: ModelToolCall,
    span: Span,
    request: tool_service_pb2.CallToolRequest,
    call_id: str,
) -> ToolMessage | tool_service_pb2.ToolQuestion:
    label = f"{tool.server}/{tool.name}"

    async def on_progress(progress: tool_service_pb2.ToolProgress) -> None:
        total = f" of {progress.total:g}" if progress.total else ""
        status = progress.message or f"{progress.progress:g}{total}"
        await turn.task.working(f"{label}: {status}")

    handle = ""

    async def on_task(new: str) -> None:
        nonlocal handle
        handle = new
        started = event_pb2.ToolTaskStarted(call_id=call_id, handle=handle)
        await turn.task.record(event_pb2.Event(tool_task_started=started))

    try:
        if request.continuation.task_handle:
            await on_task(request.continuation.task_handle)
        result = await turn.source.call_tool(request, on_progress=on_progress, on_task=on_task)
    except asyncio.CancelledError:
        # A host that stops leaves the task to the next one.
        if handle and turn.task.is_over:
            await cancel_tool_task(turn.task, turn.source, label, handle)
        raise
    except TrunklineError as error:
        telemetry.mark_error(span, error)
        problem = f"{label} failed: {redact_addresses(error)}."
        return _build_failure(
            call, f"{problem} {MAY_HAVE_RUN}" if may_have_run(tool, error) else problem
        )
    if result.HasField("question"):
        return result.question
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


async def cancel_tool_task(task: TurnRuntime, source: ToolSource, tool: str, handle: str) -> None:
    """Cancel the task of an MCP server, because the task whose call became it is canceled.

    `tool` is SERVER/TOOL. A server that can't be reached is logged.
    """
    server, _, name = tool.partition("/")
    request = tool_service_pb2.CancelToolTaskRequest(
        server=server, tool=name, handle=handle, agent=task.agent
    )
    try:
        async with asyncio.timeout(_CANCEL_S):
            await source.cancel_task(request)
    except (TimeoutError, TrunklineError) as error:
        extra = {"task_id": task.id, "problem": type(error).__name__}
        logger.warning("tool_task.not_canceled", extra=extra)


def _add_approval(
    task: TurnRuntime, request: tool_service_pb2.CallToolRequest, approval_id: str
) -> None:
    approval = task.pending_approvals.find(approval_id)
    if approval is not None:
        request.approval_id = approval_id
        request.approval_digest = approval.answered.call_digest
        request.approval_statement = approval.answered.user_statement


def _build_request(
    task: TurnRuntime, tool: tool_service_pb2.Tool, arguments: dict[str, Any]
) -> tool_service_pb2.CallToolRequest:
    request = tool_service_pb2.CallToolRequest(
        server=tool.server,
        tool=tool.name,
        task_id=task.id,
        agent=task.agent,
        exact_arguments=exact_json(arguments),
    )
    request.account = task.latest.account
    request.arguments.update(arguments)
    if task.deadline is not None:
        deadline = timestamp_pb2.Timestamp()
        deadline.FromDatetime(task.deadline)
        request.deadline.CopyFrom(deadline)
    return request


def _build_failure(call: ModelToolCall, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call["id"] or "",
        status="error",
        artifact={"is_mendable": is_mendable},
    )
