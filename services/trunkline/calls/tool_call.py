"""One call of a tool through the mesh's tool adapter: its events, its span, its approval, its task.

The journal records the start of a call before the call is made. After a crash an interrupted call
is therefore known, and not repeated if that could do harm.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import timestamp_pb2
from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.calls.tool_questions import PendingQuestion
from trunkline.calls.tool_source import ToolSource
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
    TrunklineError,
)
from trunkline.json_values import build_struct
from trunkline.metrics import instruments
from trunkline.span_content import record_tool
from trunkline.tasks.turn_runtime import HOST_STOPPED, TurnRuntime
from trunkline.tasks.writers import ToolCall
from trunkline.v1 import event_pb2, snapshot_pb2, tool_service_pb2

logger = logging.getLogger(__name__)

# Errors of calls that reached the tool, or may have.
_INTERRUPTIONS: Final = (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)
SUMMARY_CHARS: Final = 200
"""The length of a tool result's summary in the journal."""
# The summary of a call whose tool asks.
_ASKS: Final = "It asks."
# An MCP server has this long to take the cancel of a task.
_CANCEL_S: Final = 2.0


@dataclass(slots=True)
class RecordedCall:
    """A call that is being made, in the journal and in the trace."""

    tool: tool_service_pb2.Tool
    arguments: Mapping[str, Any]
    approval_id: str
    """The approval that allows the call; empty if it needs none."""
    event: ToolCall
    span: Span
    task_handle: str = ""
    """The task of the MCP server that the call became; empty: none."""

    def conclude(self, text: str, *, is_error: bool) -> None:
        """Set the end of the call, for the journal and the span."""
        record_tool(self.span, self.arguments, text)
        self.event.is_error = is_error
        self.event.summary = " ".join(text.split())[:SUMMARY_CHARS]

    def conclude_question(self) -> None:
        """Set that the call ended with a question of the tool."""
        self.event.summary = _ASKS


def tool_label(tool: tool_service_pb2.Tool) -> str:
    """Return the name of a tool in events and approvals: SERVER/TOOL."""
    return f"{tool.server}/{tool.name}"


@asynccontextmanager
async def record_tool_call(
    task: TurnRuntime,
    tool: tool_service_pb2.Tool,
    arguments: Mapping[str, Any],
    *,
    call_id: str = "",
    approval_id: str = "",
    model_call_id: str = "",
) -> AsyncIterator[RecordedCall]:
    """Record a call for the length of a block. A call that may change something is durable first.

    `call_id` is unique in the task; empty: the next number. `model_call_id` is the model's id of
    the call, for its span.
    """
    label = tool_label(tool)
    await task.progress(f"Calling {label}…")
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.EXECUTE_TOOL,
        telemetry.GEN_AI_TOOL_NAME: tool.name,
        telemetry.GEN_AI_TOOL_TYPE: telemetry.EXTENSION,
        telemetry.GEN_AI_AGENT_NAME: task.agent,
        telemetry.GEN_AI_CONVERSATION_ID: task.context_id,
        telemetry.TOOL_SERVER: tool.server,
    }
    if model_call_id:
        attributes[telemetry.GEN_AI_TOOL_CALL_ID] = model_call_id
    if approval_id:
        attributes[telemetry.APPROVAL_ID] = approval_id
    if (turn := telemetry.current_turn.get()) is not None:
        turn.tool_calls += 1
    async with task.tool(label, arguments, id=call_id) as event:
        if not tool.read_only:
            await task.flush()
        name = f"{telemetry.EXECUTE_TOOL} {tool.name}"
        with telemetry.span(name, attributes=attributes) as span, _measuring(task, tool) as failed:
            call = RecordedCall(tool, arguments, approval_id, event, span)
            yield call
            if call.event.is_error:
                failed.append(telemetry.TOOL_ERROR)


@contextmanager
def _measuring(task: TurnRuntime, tool: tool_service_pb2.Tool) -> Iterator[list[str]]:
    """Measure a call for the length of a block, which may append the kind of its error."""
    started_s = time.perf_counter()
    failed: list[str] = []
    try:
        yield failed
    except BaseException as error:
        failed.append(telemetry.error_type(error))
        raise
    finally:
        duration_s, error_type = time.perf_counter() - started_s, "".join(failed[:1])
        instruments.TOOL_DURATION.record(
            duration_s, task.agent, tool.name, telemetry.EXTENSION, error_type
        )


async def send_tool_call(
    task: TurnRuntime,
    source: ToolSource,
    call: RecordedCall,
    continuation: tool_service_pb2.ToolContinuation | None = None,
) -> tool_service_pb2.ToolResult:
    """Make a recorded call for a task, or continue it. Its progress becomes the task's.

    If the call becomes a task of the MCP server, its handle is durable before it is followed. That
    task is canceled with the mesh's task; a host that stops leaves it to the next host.

    Raises:
        TrunklineError: the call failed. An error or a question of the tool is a result.
    """
    label = tool_label(call.tool)

    async def on_progress(progress: tool_service_pb2.ToolProgress) -> None:
        total = f" of {progress.total:g}" if progress.total else ""
        status = progress.message or f"{progress.progress:g}{total}"
        await task.working(f"{label}: {status}")

    async def on_task(handle: str) -> None:
        call.task_handle = handle
        started = event_pb2.ToolTaskStarted(call_id=call.event.id, handle=handle)
        await task.record(event_pb2.Event(tool_task_started=started))

    request = _build_request(task, call)
    try:
        if continuation is not None:
            request.continuation.CopyFrom(continuation)
            if continuation.task_handle:
                await on_task(continuation.task_handle)
        return await source.call_tool(request, on_progress=on_progress, on_task=on_task)
    except asyncio.CancelledError:
        # A host that stops leaves the server's task to the next host.
        if call.task_handle and task.is_over:
            await cancel_tool_task(task, source, label, call.task_handle)
            call.task_handle = ""
        raise


async def cancel_tool_task(task: TurnRuntime, source: ToolSource, tool: str, handle: str) -> None:
    """Cancel a task of an MCP server. A server that can't be reached is logged.

    `tool` is SERVER/TOOL.
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


async def cancel_asking_tasks(
    task: TurnRuntime, source: ToolSource, questions: Iterable[PendingQuestion]
) -> None:
    """Cancel the tasks of MCP servers among the askers of some questions."""
    for question in questions:
        if question["task_handle"]:
            await cancel_tool_task(task, source, question["tool"], question["task_handle"])


def _build_request(task: TurnRuntime, call: RecordedCall) -> tool_service_pb2.CallToolRequest:
    request = tool_service_pb2.CallToolRequest(
        server=call.tool.server,
        tool=call.tool.name,
        task_id=task.id,
        agent=task.agent,
        arguments=build_struct(call.arguments),
        account=task.latest.account,
    )
    if task.deadline is not None:
        deadline = timestamp_pb2.Timestamp()
        deadline.FromDatetime(task.deadline)
        request.deadline.CopyFrom(deadline)
    approval = task.pending_approvals.find(call.approval_id)
    if approval is not None:
        request.approval_id = call.approval_id
        request.approval_digest = approval.answered.call_digest
        request.approval_statement = approval.answered.user_statement
    return request


def is_safe_to_repeat(tool: tool_service_pb2.Tool) -> bool:
    """Return whether repeating a call has no further effect."""
    return tool.read_only or tool.idempotent


def may_repeat(tool: tool_service_pb2.Tool, call: snapshot_pb2.ToolCallInfo) -> bool:
    """Return whether an earlier call can be made again: it is harmless, or only asked."""
    return is_safe_to_repeat(tool) or call.finished.summary == _ASKS


def may_have_run(tool: tool_service_pb2.Tool, error: TrunklineError) -> bool:
    """Return whether a failed call may have had an effect that must not be repeated."""
    return isinstance(error, _INTERRUPTIONS) and not is_safe_to_repeat(tool)


def describe_interrupted_call(
    tool: tool_service_pb2.Tool, call: snapshot_pb2.ToolCallInfo
) -> tuple[str, bool]:
    """Describe an interrupted call that is not repeated, and return whether it failed."""
    label = tool_label(tool)
    end = call.finished
    if not call.HasField("finished") or end.summary == HOST_STOPPED:
        return (
            f"{label} was called, and its host stopped before it answered: it is unknown whether "
            "it took effect. It was not called again; check before you request it again.",
            True,
        )
    if len(end.summary) < SUMMARY_CHARS:
        return end.summary, end.is_error
    return (
        f"{end.summary} [{label} answered more, which was lost when its host stopped.]",
        end.is_error,
    )
