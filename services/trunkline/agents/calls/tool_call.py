"""The calls of tools in one turn, by its code or by its model, through the mesh's tool adapter.

A call is permitted, recorded and made, and its outcome is recorded. The journal has the start of a
call before the call is made. After a crash an interrupted call is therefore known, and not repeated
if that could do harm.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf import timestamp_pb2
from opentelemetry.trace import Span

from trunkline.agents.calls.tool_questions import PendingQuestion, ToolQuestions
from trunkline.agents.calls.tool_source import ToolSource
from trunkline.core.json_values import build_struct, struct_json
from trunkline.core.redaction import redact_addresses
from trunkline.errors import (
    ArtifactNotFoundError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments
from trunkline.observe.span_content import record_tool
from trunkline.tasks.files import keyed_reference
from trunkline.tasks.turn_runtime import HOST_STOPPED, TurnRuntime
from trunkline.tasks.writers import ToolCall
from trunkline.v1 import event_pb2, part_pb2, snapshot_pb2, tool_service_pb2

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
_MAY_HAVE_RUN: Final = "It may have taken effect: check before you request it again."
# An MCP server has this long to take the cancel of a task.
_CANCEL_S: Final = 2.0


class Permission(NamedTuple):
    """Permission to call a tool."""

    arguments: Mapping[str, Any]
    """The final arguments, which a person may have edited."""
    approval_id: str = ""
    """The approval that allows the call, if the tool needs approval."""


@dataclass(frozen=True, slots=True)
class WantedCall:
    """A permitted call that the code or the model of a turn wants."""

    tool: tool_service_pb2.Tool
    permission: Permission
    key: str
    """Identifies the call among the questions of tools in the turn."""
    call_id: str = ""
    """Identifies the call in the journal. A call without it gets the next number."""
    earlier: snapshot_pb2.ToolCallInfo | None = None
    """The same call, if an earlier run of the turn started it."""
    model_call_id: str = ""
    """The id that a model gave to the call, for the span."""
    result_key: str = ""
    """The key under which the result is stored if the call may not be repeated. Without a key, the
    result is not stored."""


class InterruptedCall(NamedTuple):
    """The end of a call that an earlier run of the turn started, and that is not repeated."""

    text: str
    """What is known about the call, for the code or the model that wants it."""
    is_error: bool


class ToolCalls:
    """Makes the tool calls of one turn."""

    def __init__(
        self,
        turn: TurnRuntime,
        source: ToolSource,
        asked: Mapping[str, PendingQuestion],
        *,
        render: Callable[[tool_service_pb2.Tool, tool_service_pb2.ToolResult], str],
    ) -> None:
        """`asked` are the questions that the turn's message may answer, by the key of the call.

        `render` returns the text of a result for the journal and the span.
        """
        self.questions = ToolQuestions(turn, asked)
        self._turn = turn
        self._source = source
        self._render = render
        # By handle, the tools of tasks of MCP servers whose calls were left early.
        self._left_tasks: dict[str, str] = {}

    def decide(
        self,
        tool: tool_service_pb2.Tool,
        arguments: Mapping[str, Any],
        approval: snapshot_pb2.ApprovalInfo | None,
    ) -> Permission | event_pb2.ApprovalAnswered | None:
        """Return the permission of a call or the answer that rejects it; None without an answer.

        `approval` is the request for this call, if there is one.
        """
        if not tool.needs_approval:
            return Permission(arguments)
        # An answer that arrived while this turn ran is for the next one.
        if (
            approval is None
            or not approval.HasField("answered")
            or approval.answered.turn > self._turn.number
        ):
            return None
        answer = approval.answered
        if answer.decision == event_pb2.APPROVAL_DECISION_REJECTED:
            return answer
        if answer.decision == event_pb2.APPROVAL_DECISION_EDITED:
            arguments = struct_json(answer.arguments)
        return Permission(arguments, approval.requested.approval_id)

    async def make(
        self, wanted: WantedCall
    ) -> tool_service_pb2.ToolResult | InterruptedCall | None:
        """Make a call, or continue a call that an earlier run of the turn started.

        Returns None if the tool asks; `questions` then has the question. A call that an earlier run
        started is made again only if that is harmless.

        Raises:
            TrunklineError: the call failed. An error of the tool is a result.
        """
        tool, earlier = wanted.tool, wanted.earlier
        if earlier is not None and wanted.result_key:
            result = await self._load_result(wanted.result_key)
            if result is not None:
                return result
        if not self.questions.allow(wanted.key):
            return None
        continuation = self.questions.find_continuation(wanted.key, earlier)
        # Following a task again does nothing twice.
        is_task = continuation is not None and bool(continuation.task_handle)
        if earlier is not None and not is_task and not _may_repeat(tool, earlier):
            return _describe_interrupted_call(tool, earlier)
        is_again = earlier is not None or continuation is not None
        async with self._record(wanted, is_again=is_again) as record:
            return await self._send(wanted, record, continuation)

    async def cancel_left_tasks(self) -> None:
        """Cancel the tasks of MCP servers whose calls were left early, or that still ask."""
        await cancel_asking_tasks(self._turn, self._source, self.questions.open.values())
        # Code that still runs may leave more of them meanwhile.
        while self._left_tasks:
            handle, tool = self._left_tasks.popitem()
            await cancel_tool_task(self._turn, self._source, tool, handle)

    @asynccontextmanager
    async def _record(
        self, wanted: WantedCall, *, is_again: bool
    ) -> AsyncIterator["_RecordedCall"]:
        """Record a call in a block. A call that may change something is durable first.

        A call that is made again has its turn and attempt behind its id.
        """
        turn, tool, permission = self._turn, wanted.tool, wanted.permission
        label, call_id = tool_label(tool), wanted.call_id
        if call_id and is_again:
            call_id = f"{call_id}/{turn.number}.{turn.attempt}"
        await turn.progress(f"Calling {label}…")
        attributes = {
            telemetry.GEN_AI_OPERATION_NAME: telemetry.EXECUTE_TOOL,
            telemetry.GEN_AI_TOOL_NAME: tool.name,
            telemetry.GEN_AI_TOOL_TYPE: telemetry.EXTENSION,
            telemetry.GEN_AI_AGENT_NAME: turn.agent,
            telemetry.GEN_AI_CONVERSATION_ID: turn.context_id,
            telemetry.TOOL_SERVER: tool.server,
        }
        if wanted.model_call_id:
            attributes[telemetry.GEN_AI_TOOL_CALL_ID] = wanted.model_call_id
        if permission.approval_id:
            attributes[telemetry.APPROVAL_ID] = permission.approval_id
        if (activity := telemetry.current_turn.get()) is not None:
            activity.tool_calls += 1
        async with turn.tool(label, permission.arguments, id=call_id) as event:
            if not tool.read_only:
                await turn.flush()
            name = f"{telemetry.EXECUTE_TOOL} {tool.name}"
            with (
                telemetry.span(name, attributes=attributes) as span,
                _measuring(turn, tool) as failed,
            ):
                yield _RecordedCall(tool, permission, event, span)
                if event.is_error:
                    failed.append(telemetry.TOOL_ERROR)

    async def _send(
        self,
        wanted: WantedCall,
        record: "_RecordedCall",
        continuation: tool_service_pb2.ToolContinuation | None,
    ) -> tool_service_pb2.ToolResult | None:
        """Send a call whose start is recorded, and set its outcome in the record.

        Its progress becomes the progress of the task. If the call becomes a task of the MCP server,
        the journal has the handle of that task before anything follows it. That task is canceled
        with the mesh's task; a host that stops leaves it to the next host.
        """
        turn, tool, label = self._turn, wanted.tool, tool_label(wanted.tool)

        async def on_task(handle: str) -> None:
            record.task_handle = handle
            started = event_pb2.ToolTaskStarted(call_id=record.event.id, handle=handle)
            await turn.record(event_pb2.Event(tool_task_started=started))

        request = _build_request(turn, record, continuation)
        try:
            if request.continuation.task_handle:
                await on_task(request.continuation.task_handle)
            result = await self._source.call_tool(
                request, on_progress=partial(_report_progress, turn, label), on_task=on_task
            )
        except asyncio.CancelledError:
            if record.task_handle:
                self._left_tasks[record.task_handle] = label
                if turn.is_over:
                    await cancel_tool_task(turn, self._source, label, record.task_handle)
                    self._left_tasks.pop(record.task_handle, None)
            raise
        except TrunklineError as error:
            record.conclude(describe_failed_call(tool, error), is_error=True)
            raise
        if result.HasField("question"):
            self.questions.add(wanted.key, label, result.question)
            record.event.summary = _ASKS
            return None
        if result.is_error:
            telemetry.mark_error(record.span, telemetry.TOOL_ERROR)
        # A repeated call would ask again, or start another task.
        is_harmful = not _is_safe_to_repeat(tool) or continuation is not None
        if wanted.result_key and (is_harmful or record.task_handle):
            await self._store_result(wanted.result_key, result)
        record.conclude(self._render(tool, result), is_error=result.is_error)
        return result

    async def _store_result(self, key: str, result: tool_service_pb2.ToolResult) -> None:
        # A journal in memory stores no files, and loses its tasks with the process.
        with suppress(UnsupportedOperationError):
            await self._turn.store(result.SerializeToString(), key=key)

    async def _load_result(self, key: str) -> tool_service_pb2.ToolResult | None:
        reference = keyed_reference(self._turn.id, key)
        try:
            content = await self._turn.read(part_pb2.Part(url=reference.url))
        except (ArtifactNotFoundError, UnsupportedOperationError):
            return None
        return tool_service_pb2.ToolResult.FromString(content)


@dataclass(slots=True)
class _RecordedCall:
    """A call that is being made, in the journal and in the trace."""

    tool: tool_service_pb2.Tool
    permission: Permission
    event: ToolCall
    span: Span
    task_handle: str = ""
    """The task of the MCP server that the call became, if it became a task."""

    def conclude(self, text: str, *, is_error: bool) -> None:
        """Set the end of the call, for the journal and the span."""
        record_tool(self.span, self.permission.arguments, text)
        self.event.is_error = is_error
        self.event.summary = " ".join(text.split())[:SUMMARY_CHARS]


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


def tool_label(tool: tool_service_pb2.Tool) -> str:
    """Return the name of a tool in events and approvals: SERVER/TOOL."""
    return f"{tool.server}/{tool.name}"


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


async def _report_progress(
    turn: TurnRuntime, label: str, progress: tool_service_pb2.ToolProgress
) -> None:
    """Report the progress of a tool as the progress of the task. `label` names the tool."""
    total = f" of {progress.total:g}" if progress.total else ""
    status = progress.message or f"{progress.progress:g}{total}"
    await turn.working(f"{label}: {status}")


def _build_request(
    task: TurnRuntime,
    record: _RecordedCall,
    continuation: tool_service_pb2.ToolContinuation | None,
) -> tool_service_pb2.CallToolRequest:
    request = tool_service_pb2.CallToolRequest(
        continuation=continuation,
        server=record.tool.server,
        tool=record.tool.name,
        task_id=task.id,
        agent=task.agent,
        arguments=build_struct(record.permission.arguments),
        account=task.latest.account,
    )
    if task.deadline is not None:
        deadline = timestamp_pb2.Timestamp()
        deadline.FromDatetime(task.deadline)
        request.deadline.CopyFrom(deadline)
    approval_id = record.permission.approval_id
    approval = task.pending_approvals.find(approval_id)
    if approval is not None:
        request.approval_id = approval_id
        request.approval_digest = approval.answered.call_digest
        request.approval_statement = approval.answered.user_statement
    return request


def _is_safe_to_repeat(tool: tool_service_pb2.Tool) -> bool:
    """Return whether repeating a call has no further effect."""
    return tool.read_only or tool.idempotent


def _may_repeat(tool: tool_service_pb2.Tool, call: snapshot_pb2.ToolCallInfo) -> bool:
    """Return whether an earlier call can be made again: it is harmless, or only asked."""
    return _is_safe_to_repeat(tool) or call.finished.summary == _ASKS


def _may_have_run(tool: tool_service_pb2.Tool, error: TrunklineError) -> bool:
    """Return whether a failed call may have had an effect that must not be repeated."""
    return isinstance(error, _INTERRUPTIONS) and not _is_safe_to_repeat(tool)


def describe_failed_call(tool: tool_service_pb2.Tool, error: TrunklineError) -> str:
    """Return the text about a call that failed, for a model and for the journal."""
    text = f"{tool_label(tool)} failed: {redact_addresses(error)}."
    return f"{text} {_MAY_HAVE_RUN}" if _may_have_run(tool, error) else text


def _describe_interrupted_call(
    tool: tool_service_pb2.Tool, call: snapshot_pb2.ToolCallInfo
) -> InterruptedCall:
    """Describe an interrupted call that is not repeated."""
    label = tool_label(tool)
    end = call.finished
    if not call.HasField("finished") or end.summary == HOST_STOPPED:
        return InterruptedCall(
            f"{label} was called, and its host stopped before it answered: it is unknown whether "
            "it took effect. It was not called again; check before you request it again.",
            True,
        )
    if len(end.summary) < SUMMARY_CHARS:
        return InterruptedCall(end.summary, end.is_error)
    return InterruptedCall(
        f"{end.summary} [{label} answered more, which was lost when its host stopped.]",
        end.is_error,
    )
