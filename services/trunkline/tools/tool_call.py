"""A call of a tool, from the service to the session of its MCP server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline.core.json_values import struct_json
from trunkline.tools.connection import OPEN_CALL_PREFIX
from trunkline.v1 import tool_service_pb2

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from trunkline.core.identity import Identity

OnTaskCreated: TypeAlias = Callable[[str], Awaitable[None]]
"""Gets the handle of the task or of the open call that a call became, before it is followed."""


async def _ignore_task(_handle: str) -> None:
    """Do nothing with the handle of a task."""


@dataclass(slots=True)
class ToolCall:
    """A call of a tool, and its time limit."""

    request: tool_service_pb2.CallToolRequest
    on_progress: "ProgressFnT"
    on_task: OnTaskCreated = _ignore_task
    caller: "Identity | None" = None
    """The process that calls, if the adapter serves a mesh whose processes have identities."""
    timeout_s: float | None = None
    """The limit of the caller, in seconds, if it has one. The server has its own limit, too."""
    arguments: Mapping[str, Any] = field(init=False)
    """The arguments of the request, as JSON."""
    continuation: tool_service_pb2.ToolContinuation = field(init=False)
    """The earlier call that this call continues, because it asked or became a task."""
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.Timeout(None))
    """The time limit that the server has entered for the call."""
    limit_s: float | None = None
    """The length of that limit, in seconds, or None without a limit."""
    _begun_at: float = 0.0

    def __post_init__(self) -> None:
        self.arguments = struct_json(self.request.arguments)
        self.continuation = self.request.continuation

    @property
    def tool(self) -> str:
        """The name of the tool, which its server gave it."""
        return self.request.tool

    @property
    def is_task(self) -> bool:
        """True if the call has become a task of the server, which any session can follow."""
        return bool(self.continuation.task_handle) and not self.is_open_call

    @property
    def is_open_call(self) -> bool:
        """True if the call stays open in its session while its tool waits for an answer."""
        return self.continuation.task_handle.startswith(OPEN_CALL_PREFIX)

    def start_limit(self, own_s: float) -> asyncio.Timeout:
        """Return the time limit, to be entered.

        It is the shorter of the caller's limit and `own_s`, the limit of the server. A task has
        only the caller's limit.
        """
        self._begun_at = asyncio.get_running_loop().time()
        self.limit_s = own_s if self.timeout_s is None else min(own_s, self.timeout_s)
        if self.is_task:
            self.limit_s = self.timeout_s
        self.limit = asyncio.timeout(self.limit_s)
        return self.limit

    async def follow(self, handle: str) -> None:
        """Have the call continue the task or the open call that it became, and tell the caller."""
        self.continuation = tool_service_pb2.ToolContinuation(task_handle=handle)
        if self.is_task:
            self.limit_s = self.timeout_s
            end = None if self.timeout_s is None else self._begun_at + self.timeout_s
            self.limit.reschedule(end)
        await self.on_task(handle)
