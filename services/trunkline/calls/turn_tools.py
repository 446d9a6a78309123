"""The tools that the code of one turn calls itself, without a model.

A turn may run again: after its host died, or once an approval or a tool's question is answered. A
tool that changes something and is not idempotent is then not called again. Its result is stored
with the task.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from trunkline import telemetry
from trunkline.calls.tool_call import (
    cancel_asking_tasks,
    cancel_tool_task,
    describe_interrupted_call,
    is_safe_to_repeat,
    may_repeat,
    record_tool_call,
    send_tool_call,
    tool_label,
)
from trunkline.calls.tool_questions import PendingQuestion, ToolQuestions
from trunkline.calls.tool_source import ToolListing, WatchableToolSource
from trunkline.errors import (
    ArtifactNotFoundError,
    InvalidArgumentError,
    ToolServerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.json_values import build_struct, struct_json
from trunkline.tasks.approvals import ApprovalDecision
from trunkline.tasks.calls import ToolResult
from trunkline.tasks.files import keyed_reference
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import part_pb2, snapshot_pb2, tool_service_pb2


class _Permission(NamedTuple):
    """Permission to call a tool."""

    arguments: Mapping[str, Any]
    approval_id: str = ""
    """The approval that allows the call; empty if it needs none."""


class TurnTools:
    """Calls tools for one turn."""

    def __init__(
        self, turn: TurnRuntime, source: WatchableToolSource, asked: Mapping[str, PendingQuestion]
    ) -> None:
        """`asked` are the questions that the turn's message may answer, by step."""
        self.questions = ToolQuestions(turn, asked)
        self._turn = turn
        self._source = source
        self._calls = list(turn.latest.tool_calls)
        # By handle, the tools of tasks of MCP servers whose calls the code left early.
        self._left_tasks: dict[str, str] = {}

    async def call(
        self, name: str, arguments: Mapping[str, Any], step_id: str
    ) -> ToolResult | None:
        """Call a tool by SERVER/TOOL; None: a person has to approve it first, or the tool asks.

        `step_id` identifies the call when the turn runs again.

        Raises:
            InvalidArgumentError: there is no such tool for this agent, or the arguments are not
                JSON, or can't be shown to the person who approves them.
            TrunklineError: the tool server or the adapter failed.
        """
        try:
            build_struct(arguments)
        except ValueError as error:
            raise InvalidArgumentError("arguments", str(error)) from None
        tool = await self._find(name)
        permission = await self._permit(tool, arguments, step_id)
        if not isinstance(permission, _Permission):
            return permission
        call_id = permission.approval_id or step_id
        earlier = self._find_earlier(call_id)
        if earlier is not None:
            result = await self._load_result(step_id)
            if result is not None:
                return _build_answer(tool, result)
        if not self.questions.allow(step_id):
            return None
        continuation = self.questions.find_continuation(step_id, earlier)
        # Following a task again does nothing twice.
        is_task = continuation is not None and bool(continuation.task_handle)
        if earlier is not None and not is_task and not may_repeat(tool, earlier):
            text, is_error = describe_interrupted_call(tool, earlier)
            return ToolResult(text, is_error=is_error)
        if earlier is not None:
            call_id = f"{call_id}/{self._turn.number}.{self._turn.attempt}"
        return await self._send(tool, permission, call_id, step_id, continuation)

    async def cancel_left_tasks(self) -> None:
        """Cancel the tasks of MCP servers whose calls the code left early, or that still ask."""
        await cancel_asking_tasks(self._turn, self._source, self.questions.open.values())
        for handle, tool in self._left_tasks.items():
            await cancel_tool_task(self._turn, self._source, tool, handle)

    async def _send(
        self,
        tool: tool_service_pb2.Tool,
        permission: _Permission,
        call_id: str,
        step_id: str,
        continuation: tool_service_pb2.ToolContinuation | None,
    ) -> ToolResult | None:
        arguments, approval_id = permission
        async with record_tool_call(
            self._turn, tool, arguments, call_id=call_id, approval_id=approval_id
        ) as record:
            try:
                result = await send_tool_call(self._turn, self._source, record, continuation)
            except asyncio.CancelledError:
                if record.task_handle:
                    self._left_tasks[record.task_handle] = tool_label(tool)
                raise
            except TrunklineError as error:
                telemetry.mark_error(record.span, error)
                raise
            if result.HasField("question"):
                self.questions.add(step_id, tool_label(tool), result.question)
                record.conclude_question()
                return None
            if result.is_error:
                telemetry.mark_error(record.span, telemetry.TOOL_ERROR)
            # A repeated call would ask again, or start another task.
            if not is_safe_to_repeat(tool) or continuation is not None or record.task_handle:
                await self._store_result(step_id, result)
            answer = _build_answer(tool, result)
            record.conclude(answer.text, is_error=answer.is_error)
        return answer

    async def _find(self, name: str) -> tool_service_pb2.Tool:
        server, _, tool_name = name.partition("/")
        if not server or not tool_name:
            raise InvalidArgumentError("tool", f"{name!r} is not of the form SERVER/TOOL")
        listing = await self._source.list_tools((server,))
        for tool in listing.tools:
            if (tool.server, tool.name) == (server, tool_name):
                return tool
        others = sorted(tool_label(tool) for tool in listing.tools)
        if not others:
            everything = await self._list_known()
            if any(tool.server == server for tool in everything.tools) or not everything.tools:
                raise ToolServerUnavailableError(server, listing.unavailable.get(server, "is down"))
            others = sorted(tool_label(tool) for tool in everything.tools)
        problem = f"there is no {name!r} for agent {self._turn.agent!r}; there are: "
        raise InvalidArgumentError("tool", problem + ", ".join(others))

    async def _list_known(self) -> ToolListing:
        """Return the tools of all servers that are known now, without waiting for any server."""
        async with aclosing(self._source.watch_tools(())) as listings:
            async for listing in listings:
                return listing
        return ToolListing((), {})

    async def _permit(
        self, tool: tool_service_pb2.Tool, arguments: Mapping[str, Any], step_id: str
    ) -> _Permission | ToolResult | None:
        """Return the permission to call a tool, the refusal, or None while a person decides."""
        if not tool.needs_approval:
            return _Permission(arguments)
        pending_approvals = self._turn.pending_approvals
        approval = pending_approvals.find_step(step_id)
        if approval is None:
            label = tool_label(tool)
            await self._turn.record(pending_approvals.request(label, arguments, step_id=step_id))
            return None
        # An answer that arrived while this turn ran is for the next one.
        if not approval.HasField("answered") or approval.answered.turn > self._turn.number:
            return None
        answer = approval.answered
        match ApprovalDecision(answer.decision):
            case ApprovalDecision.REJECTED:
                reason = f": {answer.reason}" if answer.reason else ""
                return ToolResult(f"{tool_label(tool)} was rejected{reason}", is_error=True)
            case ApprovalDecision.EDITED:
                arguments = struct_json(answer.arguments)
        return _Permission(arguments, approval.requested.approval_id)

    def _find_earlier(self, call_id: str) -> snapshot_pb2.ToolCallInfo | None:
        """Return the latest call that was started for a step before this run of the turn."""
        # A repeated call has its turn and attempt behind a slash. Keys of steps may have slashes.
        again = re.compile(re.escape(call_id) + r"(?:/\d+\.\d+)?")
        for call in reversed(self._calls):
            if again.fullmatch(call.started.call_id):
                return call
        return None

    async def _store_result(self, step_id: str, result: tool_service_pb2.ToolResult) -> None:
        # A journal in memory stores no files, and loses its tasks with the process.
        with suppress(UnsupportedOperationError):
            await self._turn.store(result.SerializeToString(), key=_result_key(step_id))

    async def _load_result(self, step_id: str) -> tool_service_pb2.ToolResult | None:
        reference = keyed_reference(self._turn.id, _result_key(step_id))
        try:
            content = await self._turn.read(part_pb2.Part(url=reference.url))
        except (ArtifactNotFoundError, UnsupportedOperationError):
            return None
        return tool_service_pb2.ToolResult.FromString(content)


def _result_key(step_id: str) -> str:
    return f"tool-result/{step_id}"


def _build_answer(tool: tool_service_pb2.Tool, result: tool_service_pb2.ToolResult) -> ToolResult:
    parts: Sequence[part_pb2.Part] = result.content
    text = "\n".join(part.text for part in parts if part.HasField("text"))
    if result.is_error:
        text = text or f"{tool_label(tool)} failed and does not say why"
    return ToolResult(text=text, parts=parts, data=_read_data(result), is_error=result.is_error)


def _read_data(result: tool_service_pb2.ToolResult) -> Mapping[str, Any] | None:
    """Return the structured result, or the JSON object that is the only content.

    MCP servers send a dictionary as text if the tool declares no output schema.
    """
    if result.HasField("structured_content"):
        return struct_json(result.structured_content)
    if result.is_error or len(result.content) != 1 or not result.content[0].HasField("text"):
        return None
    try:
        value = json.loads(result.content[0].text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
