"""Long-running tasks of MCP servers: the client of the extension `io.modelcontextprotocol/tasks`.

By SEP-2663 a server may answer `tools/call` with a task instead of a result. The client polls the
task, answers its questions, and may cancel it. The SDK supports extensions, but does not contain
this extension. This module imports mcp: load it lazily.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import mcp_types
from mcp import MCPError
from mcp.client import ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import INTERNAL_ERROR
from pydantic import TypeAdapter

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

OnStatus: TypeAlias = Callable[[str], Awaitable[None]]
"""Called with the text of a task's status when it changes."""

# The interval of polls without a suggestion of the server, and the bounds of suggestions.
_POLL_S: Final = 1.0
_FASTEST_POLL_S: Final = 0.05
_SLOWEST_POLL_S: Final = 3600.0
_REQUESTS: Final = TypeAdapter(mcp_types.InputRequests)


class TaskCreated(mcp_types.Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: float | None = None


class TaskReport(mcp_types.Result):
    """The state of a task, as `tasks/get` returns it."""

    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: mcp_types.ErrorData | None = None


class _TaskParams(mcp_types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any]


class _GetTask(mcp_types.Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    # Mirrored into the header `Mcp-Name`, by which gateways route the request.
    name_param = "taskId"


class _UpdateTask(mcp_types.Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class _CancelTask(mcp_types.Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Declares that calls may become tasks. Servers of versions before 2026-07-28 don't see it."""

    identifier = TASKS_EXTENSION

    def claims(self) -> list[ResultClaim[TaskCreated]]:
        """Return the result of a call that became a task."""
        return [ResultClaim(result_type="task", model=TaskCreated, resolve=_refuse)]


async def _refuse(created: TaskCreated, _context: ClaimContext) -> mcp_types.CallToolResult:
    """Fail: sessions follow tasks themselves, since callers have to store the id first."""
    raise RuntimeError(created.task_id)


class McpTask:
    """A task of a server. Any session with the server can follow it."""

    def __init__(
        self, session: ClientSession, task_id: str, *, poll_ms: float | None = None
    ) -> None:
        self.id = task_id
        self._session = session
        self._poll_s = _clamp(poll_ms)
        self._answered: set[str] = set()

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Answer questions of the task, by their keys.

        Raises:
            MCPError: the server refuses, or is down.
        """
        # A server may show an answered question for a while.
        self._answered.update(responses)
        params = _UpdateParams(task_id=self.id, input_responses=dict(responses))
        await self._session.send_request(_UpdateTask(params=params), mcp_types.EmptyResult)

    async def follow(
        self, *, on_status: OnStatus
    ) -> mcp_types.CallToolResult | mcp_types.InputRequests:
        """Poll the task until it has a result or asks; return the result or the questions.

        Raises:
            MCPError: the call or the task failed, the server does not know it, or it is down.
            ValidationError: the answer is not a task, or its result is not a result of a tool.
        """
        shown = ""
        while True:
            params = _TaskParams(task_id=self.id)
            state = await self._session.send_request(_GetTask(params=params), TaskReport)
            match state.status:
                case "completed":
                    return mcp_types.CallToolResult.model_validate(state.result, by_name=False)
                case "failed" | "cancelled":
                    problem = state.status_message or f"the task was {state.status} by its server"
                    raise MCPError.from_error_data(
                        state.error or mcp_types.ErrorData(code=INTERNAL_ERROR, message=problem)
                    )
                case "input_required":
                    requests = _REQUESTS.validate_python(state.input_requests or {}, by_name=False)
                    if opened := {
                        key: request
                        for key, request in requests.items()
                        if key not in self._answered
                    }:
                        return opened
                case "working":
                    pass
            if state.status_message and state.status_message != shown:
                shown = state.status_message
                await on_status(shown)
            if state.poll_interval_ms is not None:
                self._poll_s = _clamp(state.poll_interval_ms)
            await asyncio.sleep(self._poll_s)

    async def cancel(self) -> None:
        """Ask the server to cancel the task. The task may end later, or not at all.

        Raises:
            MCPError: the server refuses, or is down.
        """
        params = _TaskParams(task_id=self.id)
        await self._session.send_request(_CancelTask(params=params), mcp_types.EmptyResult)


def _clamp(poll_ms: float | None) -> float:
    if poll_ms is None:
        return _POLL_S
    return min(max(poll_ms / 1000, _FASTEST_POLL_S), _SLOWEST_POLL_S)
