"""The tools that the code of one turn calls itself, without a model.

A turn may run again: after its host died, or once an approval or a tool's question is answered. A
tool that changes something and is not idempotent is then not called again. Its result is stored
with the task.
"""

import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from trunkline.agents.calls.tool_call import (
    InterruptedCall,
    Permission,
    ToolCalls,
    WantedCall,
    tool_label,
)
from trunkline.agents.calls.tool_questions import PendingQuestion, ToolQuestions
from trunkline.agents.calls.tool_source import ToolListing, ToolSource
from trunkline.core.json_values import build_struct, struct_json
from trunkline.errors import InvalidArgumentError, ToolServerUnavailableError
from trunkline.tasks.calls import ToolResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import snapshot_pb2, tool_service_pb2


class TurnTools:
    """Calls tools for the code of one turn."""

    def __init__(
        self, turn: TurnRuntime, source: ToolSource, asked: Mapping[str, PendingQuestion]
    ) -> None:
        """`asked` are the questions that the turn's message may answer, by step."""
        self._turn = turn
        self._source = source
        self._calls = ToolCalls(turn, source, asked, render=_render)
        self._earlier = list(turn.latest.tool_calls)

    @property
    def questions(self) -> ToolQuestions:
        """The questions of tools in the turn, by step."""
        return self._calls.questions

    async def call(
        self, name: str, arguments: Mapping[str, Any], step_id: str
    ) -> ToolResult | None:
        """Call a tool by SERVER/TOOL; return None if a person must approve it or the tool asks.

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
        approvals = self._turn.pending_approvals
        approval = approvals.find_step(step_id)
        permission = self._calls.decide(tool, arguments, approval)
        if permission is None:
            if approval is None:
                await self._turn.record(
                    approvals.request(tool_label(tool), arguments, step_id=step_id)
                )
            return None
        if not isinstance(permission, Permission):
            reason = f": {permission.reason}" if permission.reason else ""
            return ToolResult(f"{tool_label(tool)} was rejected{reason}", is_error=True)
        call_id = permission.approval_id or step_id
        outcome = await self._calls.make(
            WantedCall(
                tool,
                permission,
                step_id,
                call_id=call_id,
                earlier=self._find_earlier(call_id),
                result_key=f"tool-result/{step_id}",
            )
        )
        match outcome:
            case None:
                return None
            case InterruptedCall():
                return ToolResult(outcome.text, is_error=outcome.is_error)
        return ToolResult(
            text=_render(tool, outcome),
            parts=outcome.content,
            data=_read_data(outcome),
            is_error=outcome.is_error,
        )

    async def cancel_left_tasks(self) -> None:
        """Cancel the tasks of MCP servers whose calls the code left early, or that still ask."""
        await self._calls.cancel_left_tasks()

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

    def _find_earlier(self, call_id: str) -> snapshot_pb2.ToolCallInfo | None:
        """Return the latest call that was started for a step before this run of the turn."""
        # A repeated call has its turn and attempt behind a slash. Keys of steps may have slashes.
        again = re.compile(re.escape(call_id) + r"(?:/\d+\.\d+)?")
        for call in reversed(self._earlier):
            if again.fullmatch(call.started.call_id):
                return call
        return None


def _render(tool: tool_service_pb2.Tool, result: tool_service_pb2.ToolResult) -> str:
    """Return the text of a result, which says so if the tool failed without a text."""
    text = "\n".join(part.text for part in result.content if part.HasField("text"))
    return text or (f"{tool_label(tool)} failed and does not say why" if result.is_error else "")


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
