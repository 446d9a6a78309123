"""A call of a tool, as the adapter, the server, its session and its open calls hand it on."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline.v1 import tool_service_pb2

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

CheckCall: TypeAlias = Callable[[tool_service_pb2.Tool], Awaitable[None]]
"""Checks that a tool may be called, by its current declaration. Raises if it may not."""
OnTaskCreated: TypeAlias = Callable[[str], Awaitable[None]]
"""Gets the handle of the task or of the open call that a call became, before it is followed."""


async def _ignore_task(_handle: str) -> None:
    """Do nothing with the handle of a task."""


@dataclass(slots=True)
class ToolCall:
    """A call of a tool."""

    tool: str
    arguments: Mapping[str, Any]
    on_progress: "ProgressFnT"
    check: CheckCall | None = None
    """Checks the tool before its first call."""
    continuation: tool_service_pb2.ToolContinuation = field(
        default_factory=tool_service_pb2.ToolContinuation
    )
    """The earlier call that this call continues, because it asked or became a task."""
    on_task: OnTaskCreated = _ignore_task
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.Timeout(None))
    """The time limit that the server has entered for the call."""
