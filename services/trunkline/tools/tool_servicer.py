"""Serves `trunkline.v1.ToolService` from the tool adapter."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import grpc

from trunkline.core.settings import AgentSettings
from trunkline.errors import ToolNotFoundError
from trunkline.mesh.client.artifacts import ArtifactClient
from trunkline.mesh.client.services import remaining_s
from trunkline.mesh.server.authorization import caller
from trunkline.mesh.server.policy import find_acting_agents
from trunkline.observe.audit import Action, AuditLog, process_actor, recording
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.results import ContentUploader, limit_result_size
from trunkline.tools.tool_call import ToolCall
from trunkline.v1 import part_pb2, tool_service_pb2, tool_service_pb2_grpc

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

# Progress reports that may wait for a slow reader. More are dropped, since newer ones follow.
_PROGRESS_LIMIT = 16


SERVICE = tool_service_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """Serves the tools of all MCP servers over gRPC."""

    def __init__(
        self,
        adapter: ToolAdapter,
        gate: ApprovalGate,
        *,
        agents: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, AgentSettings] | None = None,
        artifacts: ArtifactClient | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """Serve the tools of `adapter`. `gate` checks the approvals of calls.

        `agents` lists the agents that use each server, by server name. `options`, by agent name,
        restrict the tools that an agent may call. `artifacts` stores content that is too large for
        a result. Calls with an approval, and refused ones, are recorded in `audit`.
        """
        self._adapter = adapter
        self._agents = agents or {}
        self._options = options or {}
        self._artifacts = artifacts
        self._audit = audit
        self._gate = gate

    async def ListTools(
        self, request: tool_service_pb2.ListToolsRequest, _context: _Context
    ) -> tool_service_pb2.ListToolsResponse:
        self._adapter.note_use(request.servers)
        tools, servers = self._list_tools(request.servers)
        return tool_service_pb2.ListToolsResponse(tools=tools, servers=servers)

    # A coroutine that writes, not a generator: cancellation of the call then reaches the tool at
    # once. grpc.aio accepts both; its type stubs know only generators.
    async def CallTool(  # type: ignore[override]
        self, request: tool_service_pb2.CallToolRequest, context: _Context
    ) -> None:
        with recording(
            self._audit,
            Action.TOOL_CALL,
            lambda: process_actor(context.peer(), account=request.account),
            is_recorded=bool(request.approval_id),
            tool=f"{request.server}/{request.tool}",
            agent=request.agent,
            task=request.task_id,
            approval=request.approval_id,
        ):
            self._check_agents(request)
            server = self._adapter.get_server(request.server, request.tool)
            progress = _ProgressWriter(context.write)
            call = ToolCall(
                request,
                progress.write,
                progress.write_task,
                caller=caller.get(None),
                timeout_s=remaining_s(request),
            )
            try:
                result = await limit_result_size(
                    await server.call(call, self._gate),
                    tool=f"{request.server}/{request.tool}",
                    limit_bytes=self._adapter.result_limit_bytes,
                    upload=self._make_uploader(request),
                )
                if result.HasField("question"):
                    await self._gate.expect_answer(request, result.question)
            finally:
                await progress.close()
        await context.write(tool_service_pb2.CallToolResponse(result=result))

    async def CancelToolTask(
        self, request: tool_service_pb2.CancelToolTaskRequest, _context: _Context
    ) -> tool_service_pb2.CancelToolTaskResponse:
        self._check_agents(request)
        server = self._adapter.get_server(request.server, request.tool)
        await server.cancel_task(request.handle)
        return tool_service_pb2.CancelToolTaskResponse()

    async def StartSignIn(
        self, request: tool_service_pb2.StartSignInRequest, _context: _Context
    ) -> tool_service_pb2.StartSignInResponse:
        url = await self._adapter.start_sign_in(request.server, request.redirect_uri)
        return tool_service_pb2.StartSignInResponse(url=url)

    async def CompleteSignIn(
        self, request: tool_service_pb2.CompleteSignInRequest, _context: _Context
    ) -> tool_service_pb2.CompleteSignInResponse:
        await self._adapter.complete_sign_in(request.server, request.answer)
        return tool_service_pb2.CompleteSignInResponse()

    async def WatchTools(
        self, request: tool_service_pb2.WatchToolsRequest, _context: _Context
    ) -> AsyncIterator[tool_service_pb2.WatchToolsResponse]:
        sent: tool_service_pb2.WatchToolsResponse | None = None
        while True:
            revision = self._adapter.revision
            tools, servers = self._list_tools(request.servers)
            current = tool_service_pb2.WatchToolsResponse(tools=tools, servers=servers)
            if current != sent:
                yield current
                sent = current
            await self._adapter.wait_for_change(revision)

    def _check_agents(
        self, request: tool_service_pb2.CallToolRequest | tool_service_pb2.CancelToolTaskRequest
    ) -> None:
        """Check that the calling agent may use the tool.

        Raises:
            ToolNotFoundError: its settings do not allow the tool.
            PermissionDeniedError: the calling process may not serve the agent.
        """
        peer = caller.get(None)
        agents = {request.agent} if peer is None else find_acting_agents(peer, request.agent)
        for agent in agents:
            options = self._options.get(agent)
            if options is not None and not options.allows_tool(request.server, request.tool):
                raise ToolNotFoundError(request.server, request.tool)

    def _make_uploader(self, request: tool_service_pb2.CallToolRequest) -> ContentUploader | None:
        artifacts = self._artifacts
        # Only an agent's call belongs to a task of a host, which could store the content.
        if artifacts is None or not (request.task_id and request.agent):
            return None

        async def upload(content: bytes, about: part_pb2.Part) -> part_pb2.Part:
            part = await artifacts.upload(
                request.task_id,
                request.account,
                content,
                media_type=about.media_type,
                filename=about.filename,
            )
            part.metadata.MergeFrom(about.metadata)
            return part

        return upload

    def _list_tools(
        self, names: Sequence[str]
    ) -> tuple[list[tool_service_pb2.Tool], list[tool_service_pb2.ToolServer]]:
        servers = self._adapter.list_servers(names)
        tools = [tool for server in servers for tool in server.tools.values()]
        states = [
            tool_service_pb2.ToolServer(
                name=server.name,
                state=server.state,
                error=server.breaker.problem or server.error,
                agents=self._agents.get(server.name, ()),
                breaker=server.breaker.state,
                listing_problems=server.listing_problems,
            )
            for server in servers
        ]
        return tools, states


class _ProgressWriter:
    """Writes progress reports to the caller: in order, and none after the result."""

    def __init__(
        self, write: Callable[[tool_service_pb2.CallToolResponse], Awaitable[None]]
    ) -> None:
        self._write = write
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._is_over = False

    async def write(self, progress: float, total: float | None, message: str | None) -> None:
        if self._waiting >= _PROGRESS_LIMIT:
            return
        self._waiting += 1
        try:
            async with self._lock:
                if self._is_over:
                    return
                report = tool_service_pb2.ToolProgress(
                    progress=progress, total=total or 0, message=message or ""
                )
                await self._write(tool_service_pb2.CallToolResponse(progress=report))
        finally:
            self._waiting -= 1

    async def write_task(self, handle: str) -> None:
        """Write the id of the task that the call became. Waits for a slow reader."""
        async with self._lock:
            task = tool_service_pb2.ToolTask(handle=handle)
            await self._write(tool_service_pb2.CallToolResponse(task=task))

    async def close(self) -> None:
        """Write the waiting reports, then no more."""
        async with self._lock:
            self._is_over = True
