"""Calls to the tool adapter."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import grpc

from trunkline.client.channels import breaker_of, peer_of
from trunkline.client.hosts.calls import UNARY_TIMEOUT_S
from trunkline.client.status import mesh_errors
from trunkline.v1 import tool_service_pb2, tool_service_pb2_grpc


class ToolClient:
    """The tool adapter as agents see it. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._peer = peer_of(channel)
        self._breaker = breaker_of(channel)
        self._stub = tool_service_pb2_grpc.ToolServiceStub(channel)

    async def list_tools(self, servers: tuple[str, ...] = ()) -> tool_service_pb2.ListToolsResponse:
        """Return the tools that can be called now, and all servers; empty `servers`: of all."""
        request = tool_service_pb2.ListToolsRequest(servers=servers)
        with self._breaker.guard(), mesh_errors(self._peer):
            return await self._stub.ListTools(request, timeout=UNARY_TIMEOUT_S)

    @asynccontextmanager
    async def call_tool(
        self, request: tool_service_pb2.CallToolRequest
    ) -> AsyncIterator[AsyncIterator[tool_service_pb2.CallToolResponse]]:
        """Call a tool for the length of a block; leaving it before the result cancels the tool.

        The request's deadline is the call's. Errors, ToolNotFoundError and
        ToolServerUnavailableError among them, come while iterating.
        """
        timeout_s = time_left_s(request)
        with self._breaker.guard(has_deadline=timeout_s is not None):
            with mesh_errors(self._peer):
                call = self._stub.CallTool(request, timeout=timeout_s)

            async def responses() -> AsyncIterator[tool_service_pb2.CallToolResponse]:
                with mesh_errors(self._peer):
                    async for response in call:
                        yield response

            try:
                yield responses()
            finally:
                call.cancel()

    async def watch_tools(
        self, servers: tuple[str, ...] = ()
    ) -> AsyncGenerator[tool_service_pb2.WatchToolsResponse, None]:
        """Yield the list now and whenever it changes. Close the iterator to end the call."""
        with mesh_errors(self._peer):
            call = self._stub.WatchTools(tool_service_pb2.WatchToolsRequest(servers=servers))
        try:
            with mesh_errors(self._peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()


def time_left_s(request: tool_service_pb2.CallToolRequest) -> float | None:
    """Return the seconds until a call must have ended, at least 0; None: no limit."""
    if not request.HasField("deadline"):
        return None
    left = request.deadline.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    return max(left.total_seconds(), 0.0)
