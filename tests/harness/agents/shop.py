"""Agents whose orders need a person's approval, and the record of these orders."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from trunkline.agents.calls.tool_source import OnProgress, OnTask, ToolListing
from trunkline.agents.reasoning import ReasoningAgent
from trunkline.agents.reasoning.models import Model
from trunkline.core.json_values import struct_json, update_struct
from trunkline.v1 import agent_card_pb2, part_pb2, tool_service_pb2


def order_tool(
    server: str, *, needs_approval: bool = True, idempotent: bool = False
) -> tool_service_pb2.Tool:
    """A tool that orders a number of an item."""
    tool = tool_service_pb2.Tool(
        server=server,
        name="order",
        needs_approval=needs_approval,
        destructive=True,
        idempotent=idempotent,
    )
    update_struct(
        tool.metadata,
        {
            "trunkline/match": [
                {
                    "pattern": r"order (?P<n>\d+) (?P<item>\w+).*",
                    "arguments": {"n": {"from": "{n}", "type": "number"}, "item": "{item}"},
                }
            ]
        },
    )
    return tool


class ToolsWithoutTasks:
    """A part of tool sources that never change, and whose calls become no tasks of MCP servers."""

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        """Return the tools of these servers."""
        raise NotImplementedError

    async def watch_tools(self, servers: Sequence[str]) -> AsyncGenerator[ToolListing, None]:
        """Yield the tools once."""
        yield await self.list_tools(servers)

    async def cancel_task(self, request: tool_service_pb2.CancelToolTaskRequest) -> None:
        """Fail: no call became this task."""
        raise AssertionError(request)


class Orders(ToolsWithoutTasks):
    """The tool source of a shop. It records each call."""

    def __init__(self, **flags: bool) -> None:
        self.orders: list[dict[str, Any]] = []
        self.requests: list[tool_service_pb2.CallToolRequest] = []
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        """The error that ends each call after it is recorded; None: calls succeed."""
        self._flags = flags

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        """Return the tool."""
        return ToolListing((order_tool(servers[0], **self._flags),), {})

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        """Order."""
        arguments = struct_json(request.arguments)
        self.orders.append(arguments)
        self.requests.append(request)
        self.began.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        text = f"Ordered {arguments['n']} {arguments['item']}."
        return tool_service_pb2.ToolResult(content=[part_pb2.Part(text=text)])


def shop(name: str, orders: Orders, *, model: Model | None = None) -> ReasoningAgent:
    """An agent that orders what its name says."""
    skill = agent_card_pb2.AgentSkill(
        id="order", name="Order", description=f"Orders {name}.", tags=[name], examples=[]
    )
    card = agent_card_pb2.AgentCard(
        name=name,
        description=f"Orders {name}.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )
    return ReasoningAgent(card, servers=[name], tools=orders, model=model)
