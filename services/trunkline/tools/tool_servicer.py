"""Serves `trunkline.v1.ToolService` from the tool adapter."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import grpc
from google.protobuf import json_format

from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.server import ToolServer
from trunkline.v1 import tool_service_pb2, tool_service_pb2_grpc

# News of a call that may wait for a slow reader; what comes on top is dropped, since newer follows.
_WAITING_NEWS = 16


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """The tools of all MCP servers over gRPC."""

    def __init__(self, adapter: ToolAdapter) -> None:
        self._adapter = adapter

    async def ListTools(
        self,
        request: tool_service_pb2.ListToolsRequest,
        context: grpc.aio.ServicerContext[
            tool_service_pb2.ListToolsRequest, tool_service_pb2.ListToolsResponse
        ],
    ) -> tool_service_pb2.ListToolsResponse:
        servers = self._adapter.servers(request.servers)
        return tool_service_pb2.ListToolsResponse(
            tools=_tools(servers), servers=[_server(one) for one in servers]
        )

    # grpc.aio also takes a coroutine that writes, which its type stubs don't know. Unlike a
    # generator it is where a cancellation arrives, so that the tool is told at once.
    async def CallTool(  # type: ignore[override]
        self,
        request: tool_service_pb2.CallToolRequest,
        context: grpc.aio.ServicerContext[
            tool_service_pb2.CallToolRequest, tool_service_pb2.CallToolResponse
        ],
    ) -> None:
        news = _News(context.write)
        try:
            result = await self._adapter.call(
                request.server,
                request.tool,
                json_format.MessageToDict(request.arguments),
                timeout_s=_time_left_s(request),
                on_progress=news.write,
            )
        finally:
            await news.close()
        await context.write(tool_service_pb2.CallToolResponse(result=result))

    async def WatchTools(
        self,
        request: tool_service_pb2.WatchToolsRequest,
        context: grpc.aio.ServicerContext[
            tool_service_pb2.WatchToolsRequest, tool_service_pb2.WatchToolsResponse
        ],
    ) -> AsyncIterator[tool_service_pb2.WatchToolsResponse]:
        seen: tool_service_pb2.WatchToolsResponse | None = None
        while True:
            revision = self._adapter.revision
            servers = self._adapter.servers(request.servers)
            now = tool_service_pb2.WatchToolsResponse(
                tools=_tools(servers), servers=[_server(one) for one in servers]
            )
            if now != seen:
                yield now
                seen = now
            await self._adapter.changed(revision)


class _News:
    """Progress on its way to the caller: in order, none after the result."""

    def __init__(
        self, write: Callable[[tool_service_pb2.CallToolResponse], Awaitable[None]]
    ) -> None:
        self._write = write
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._is_over = False

    async def write(self, progress: float, total: float | None, message: str | None) -> None:
        if self._waiting >= _WAITING_NEWS:
            return
        self._waiting += 1
        try:
            async with self._lock:
                if self._is_over:
                    return
                news = tool_service_pb2.ToolProgress(
                    progress=progress, total=total or 0, message=message or ""
                )
                await self._write(tool_service_pb2.CallToolResponse(progress=news))
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Write what waits, then nothing more."""
        async with self._lock:
            self._is_over = True


def _tools(servers: list[ToolServer]) -> list[tool_service_pb2.Tool]:
    return [tool for server in servers for tool in server.tools.values()]


def _server(server: ToolServer) -> tool_service_pb2.ToolServer:
    return tool_service_pb2.ToolServer(name=server.name, state=server.state, error=server.error)


def _time_left_s(request: tool_service_pb2.CallToolRequest) -> float | None:
    if not request.HasField("deadline"):
        return None
    left = request.deadline.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    return max(left.total_seconds(), 0.0)
