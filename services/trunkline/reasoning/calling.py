"""The node `tools` of the reasoning loop: all calls of one reply at once."""

import asyncio
from typing import Any

from google.protobuf import json_format, timestamp_pb2
from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.runtime import Runtime
from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.reasoning.turn import State, Turn, check_room, last_reply
from trunkline.tasks.turn.context import TaskContext
from trunkline.v1 import tool_service_pb2

_SUMMARY_CHARS = 200


async def call_tools(state: State, runtime: Runtime[Turn]) -> dict[str, Any]:
    """Add the results of the calls that the model asked for."""
    calls = last_reply(state).tool_calls
    check_room(runtime.context, state)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_call(runtime.context, call)) for call in calls]
    parts = [part.SerializeToString() for part in runtime.context.parts]
    return {"messages": [call.result() for call in running], "parts": parts}


async def _call(turn: Turn, call: ModelToolCall) -> ToolMessage:
    tool = turn.tools.find(call["name"])
    if tool is None:
        return _failure(call, f"There is no tool {call['name']}.")
    label = f"{tool.server}/{tool.name}"
    await turn.task.working(f"Calling {label}…")
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.EXECUTE_TOOL,
        telemetry.GEN_AI_TOOL_NAME: tool.name,
        telemetry.GEN_AI_TOOL_CALL_ID: call["id"] or "",
        telemetry.TOOL_SERVER: tool.server,
    }
    async with turn.task.tool(label, call["args"]) as record:
        with telemetry.span(f"{telemetry.EXECUTE_TOOL} {tool.name}", attributes=attributes) as span:
            message = await _execute(turn, tool, call, span)
        record.is_error = message.status == "error"
        record.summary = " ".join(message.text.split())[:_SUMMARY_CHARS]
    return message


async def _execute(
    turn: Turn, tool: tool_service_pb2.Tool, call: ModelToolCall, span: Span
) -> ToolMessage:
    label = f"{tool.server}/{tool.name}"

    async def on_progress(progress: tool_service_pb2.ToolProgress) -> None:
        total = f" of {progress.total:g}" if progress.total else ""
        news = progress.message or f"{progress.progress:g}{total}"
        await turn.task.working(f"{label}: {news}")

    try:
        request = _request(turn.task, tool, call["args"])
        result = await turn.source.call_tool(request, on_progress=on_progress)
    except TrunklineError as error:
        telemetry.mark_error(span, error)
        return _failure(call, f"{label} failed: {error}.")
    text = "\n".join(part.text for part in result.content if part.HasField("text"))
    if result.is_error:
        telemetry.mark_error(span, telemetry.TOOL_ERROR)
        if result.is_mendable:
            return _failure(call, text or f"{label} can't do that.", is_mendable=True)
        return _failure(call, f"{label} failed: {text or 'it does not say why.'}")
    turn.parts += [part for part in result.content if not part.HasField("text")]
    structured = json_format.MessageToDict(result.structured_content)
    if not text and not turn.parts:
        text = f"{label} answered with nothing."
    artifact = {"structured": structured}
    return ToolMessage(content=text, tool_call_id=call["id"] or "", artifact=artifact)


def _request(
    task: TaskContext, tool: tool_service_pb2.Tool, arguments: dict[str, Any]
) -> tool_service_pb2.CallToolRequest:
    request = tool_service_pb2.CallToolRequest(
        server=tool.server, tool=tool.name, task_id=task.id, agent=task.agent
    )
    request.arguments.update(arguments)
    if task.deadline is not None:
        deadline = timestamp_pb2.Timestamp()
        deadline.FromDatetime(task.deadline)
        request.deadline.CopyFrom(deadline)
    return request


def _failure(call: ModelToolCall, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call["id"] or "",
        status="error",
        artifact={"is_mendable": is_mendable},
    )
