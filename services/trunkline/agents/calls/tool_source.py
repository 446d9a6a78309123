"""Tool sources for agents, such as the mesh's tool adapter."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from trunkline.core.backoff import RetryWindow
from trunkline.core.settings import AgentSettings
from trunkline.errors import (
    PeerUnavailableError,
    ToolNotFoundError,
    ToolServerUnavailableError,
)
from trunkline.mesh.client.directory import START_S, Directory
from trunkline.mesh.client.mesh_words import TOOL_SERVICE
from trunkline.mesh.client.services import (
    TOOL_SERVERS_TIMEOUT_S,
    ListedTools,
    ToolClient,
)
from trunkline.v1 import tool_service_pb2

OnProgress: TypeAlias = Callable[[tool_service_pb2.ToolProgress], Awaitable[None]]
OnTask: TypeAlias = Callable[[str], Awaitable[None]]
"""Called with the handle of the task that a call became."""

_TASK_RETRY_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of some servers, and the reasons why others are unavailable."""

    tools: tuple[tool_service_pb2.Tool, ...]
    unavailable: Mapping[str, str]


class ToolSource(Protocol):
    """A source of tools that can be listed, watched and called."""

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        """Return the tools of these servers.

        Raises:
            PeerUnavailableError: no host serves tools.
        """

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        """Call a tool. Cancellation cancels the tool.

        `on_task` is called with the handle if the call becomes a long-running task. Cancellation
        then ends only the call, and `cancel_task` the task.

        Raises:
            TrunklineError: the call failed. An error of the tool is a result.
        """

    async def cancel_task(self, request: tool_service_pb2.CancelToolTaskRequest) -> None:
        """Tell an MCP server that a task is wanted no more.

        Raises:
            TrunklineError: the server is down, or the agent may not use the tool.
        """

    def watch_tools(self, servers: Sequence[str]) -> AsyncGenerator[ToolListing, None]:
        """Yield the tools of these servers now and after each change; starts no server.

        Raises:
            PeerUnavailableError: no host serves tools, or it went away.
        """


class MeshTools:
    """The tools of the mesh's tool adapter, or those of them that an agent may use."""

    def __init__(self, directory: Directory, options: AgentSettings | None = None) -> None:
        """`options` are the settings of the agent. Without them, all tools may be used."""
        self._directory = directory
        self._options = options or AgentSettings()

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        """Return the tools of these servers. Waits for servers that are starting.

        Waits as well while the adapter is away and expected: all processes start at once, or its
        process starts again.
        """
        directory = self._directory
        if directory.revision == 0:
            directory.expect_service(TOOL_SERVICE)
        window = RetryWindow(START_S)
        while True:
            revision = directory.revision
            client: ToolClient | None = None
            try:
                client = directory.tool_client()
                # Servers that are still starting then count as unavailable.
                response = await client.wait_for_tools(
                    tuple(servers), timeout_s=TOOL_SERVERS_TIMEOUT_S
                )
            except PeerUnavailableError as error:
                named = _name_adapter(error, client)
                if not directory.is_service_expected(TOOL_SERVICE):
                    raise named from error
                with suppress(TimeoutError):
                    async with asyncio.timeout(window.next_pause_s(named)):
                        await directory.wait_for_change(revision)
            else:
                return self._build_listing(servers, response)

    async def watch_tools(self, servers: Sequence[str]) -> AsyncGenerator[ToolListing, None]:
        """Yield the tools of these servers now and after each change."""
        async with aclosing(self._directory.tool_client().watch_tools(tuple(servers))) as responses:
            async for response in responses:
                yield self._build_listing(servers, response)

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        """Call a tool through the adapter. Raises ToolNotFoundError if the agent may not use it.

        A task of an MCP server does not end with a connection: while its server or the adapter is
        down, it is followed again, for ten minutes after the last report.
        """
        if not self._options.allows_tool(request.server, request.tool):
            raise ToolNotFoundError(request.server, request.tool)
        handle = request.continuation.task_handle
        window = RetryWindow(_TASK_RETRY_S)
        while True:
            try:
                async with aclosing(self._directory.tool_client().call_tool(request)) as responses:
                    async for response in responses:
                        if response.HasField("result"):
                            return response.result
                        if response.HasField("progress"):
                            window.reset()
                            await on_progress(response.progress)
                        elif response.HasField("task"):
                            handle = response.task.handle
                            await on_task(handle)
            except (PeerUnavailableError, ToolServerUnavailableError) as error:
                if not handle:
                    raise
                if not window.is_retrying:
                    waiting = tool_service_pb2.ToolProgress(message=f"waiting, since {error}")
                    await on_progress(waiting)
                await asyncio.sleep(window.next_pause_s(error))
            request = _follow_task(request, handle)

    async def cancel_task(self, request: tool_service_pb2.CancelToolTaskRequest) -> None:
        """Cancel a task through the adapter."""
        await self._directory.tool_client().cancel_tool_task(request)

    def _build_listing(self, names: Sequence[str], response: ListedTools) -> ToolListing:
        problems = dict.fromkeys(names, "it is not in the mcpServers file")
        for server in response.servers:
            problems.pop(server.name, None)
            if server.state != tool_service_pb2.TOOL_SERVER_STATE_READY:
                problems[server.name] = server.error or "it is still starting"
        may_use = self._options.allows_tool
        tools = tuple(tool for tool in response.tools if may_use(tool.server, tool.name))
        return ToolListing(tools, problems)


def _follow_task(
    request: tool_service_pb2.CallToolRequest, handle: str
) -> tool_service_pb2.CallToolRequest:
    """Return the request that follows the task that a call became."""
    if request.continuation.task_handle == handle:
        return request
    following = tool_service_pb2.CallToolRequest()
    following.CopyFrom(request)
    following.continuation.CopyFrom(tool_service_pb2.ToolContinuation(task_handle=handle))
    return following


def _name_adapter(error: PeerUnavailableError, client: ToolClient | None) -> PeerUnavailableError:
    """Return an error of a call that says which process can't be reached."""
    if client is None:
        return error
    return replace(error, peer=f"the tool adapter at {error.peer}")
