"""One call of a tool through the mesh's tool adapter: its events, its span and its approval.

The journal records the start of a call before the call is made. After a crash an interrupted call
is therefore known, and not repeated if that could do harm.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from google.protobuf import timestamp_pb2
from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.calls.tool_source import ToolSource
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
    TrunklineError,
)
from trunkline.span_content import record_tool
from trunkline.tasks.content import exact_json
from trunkline.tasks.turn_runtime import HOST_STOPPED, TurnRuntime
from trunkline.tasks.writers import ToolCall
from trunkline.v1 import snapshot_pb2, tool_service_pb2

# Errors of calls that reached the tool, or may have.
_INTERRUPTIONS: Final = (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)
SUMMARY_CHARS: Final = 200
"""The length of a tool result's summary in the journal."""


class RecordedCall(NamedTuple):
    """A call that is being made, in the journal and in the trace."""

    event: ToolCall
    span: Span
    arguments: Mapping[str, Any]

    def conclude(self, text: str, *, is_error: bool) -> None:
        """Set the end of the call, for the journal and the span."""
        record_tool(self.span, self.arguments, text)
        self.event.is_error = is_error
        self.event.summary = " ".join(text.split())[:SUMMARY_CHARS]


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
        telemetry.GEN_AI_TOOL_CALL_ID: model_call_id,
        telemetry.TOOL_SERVER: tool.server,
    }
    if approval_id:
        attributes[telemetry.APPROVAL_ID] = approval_id
    async with task.tool(label, arguments, id=call_id) as event:
        if not tool.read_only:
            await task.flush()
        with telemetry.span(f"{telemetry.EXECUTE_TOOL} {tool.name}", attributes=attributes) as span:
            yield RecordedCall(event, span, arguments)


async def send_tool_call(
    task: TurnRuntime,
    source: ToolSource,
    tool: tool_service_pb2.Tool,
    arguments: Mapping[str, Any],
    *,
    approval_id: str = "",
) -> tool_service_pb2.ToolResult:
    """Call a tool for a task, with its approval if it needs one. Its progress becomes the task's.

    Raises:
        TrunklineError: the call failed. An error of the tool is a result.
    """
    label = tool_label(tool)

    async def on_progress(progress: tool_service_pb2.ToolProgress) -> None:
        total = f" of {progress.total:g}" if progress.total else ""
        status = progress.message or f"{progress.progress:g}{total}"
        await task.working(f"{label}: {status}")

    request = tool_service_pb2.CallToolRequest(
        server=tool.server,
        tool=tool.name,
        task_id=task.id,
        agent=task.agent,
        exact_arguments=exact_json(arguments),
    )
    request.account = task.latest.account
    request.arguments.update(dict(arguments))
    if task.deadline is not None:
        deadline = timestamp_pb2.Timestamp()
        deadline.FromDatetime(task.deadline)
        request.deadline.CopyFrom(deadline)
    approval = task.pending_approvals.find(approval_id)
    if approval is not None:
        request.approval_id = approval_id
        request.approval_digest = approval.answered.call_digest
        request.approval_statement = approval.answered.user_statement
    return await source.call_tool(request, on_progress=on_progress)


def is_safe_to_repeat(tool: tool_service_pb2.Tool) -> bool:
    """Return whether repeating a call has no further effect."""
    return tool.read_only or tool.idempotent


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
