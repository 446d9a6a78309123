"""The MCP server: agents as tools, over stdio and streamable HTTP."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final, Protocol, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from trunkline.a2a_client.client import Client
from trunkline.a2a_client.client_stream import ClientStream
from trunkline.errors import TaskNotFoundError, TrunklineError
from trunkline_bridge.mcp.agent_clients import AgentClients, CallerCredentials
from trunkline_bridge.mcp.agent_tools import AgentInfo, find_input_schema
from trunkline_bridge.mcp.calls import DETACH_S, AgentCall, CallResult
from trunkline_bridge.mcp.client_features import TASKS_EXTENSION, ClientFeatures, RequestContext
from trunkline_bridge.mcp.tasks import (
    TaskHandle,
    TaskParams,
    UpdateTaskParams,
    cancel_task,
    get_task,
    update_task,
)

_NAME: Final = "trunkline"
_INSTRUCTIONS: Final = (
    "Each tool is an agent. Send it a request in plain words. If it asks a question, answer with "
    "the task_id of the result; to go on with the same subject later, pass its context_id."
)
_CANCEL_TIMEOUT_S: Final = 5.0
# The time for which a person may answer a question.
_STATE_TTL_S: Final = 24 * 3600.0
# A session takes about 40 KB. A client whose session has ended opens another one.
_MAX_SESSIONS: Final = 1000
_SESSION_IDLE_S: Final = 600.0
_Result = TypeVar("_Result")


class AgentSource(Protocol):
    """The agents that are offered."""

    def list_agents(self) -> Sequence[AgentInfo]:
        """Return the agents, sorted by name."""
        ...

    async def wait_for_change(self) -> None:
        """Wait until agents have come or gone since the last call."""
        ...


class AgentServer:
    """Serves agents as tools. Enter it before a transport is served."""

    def __init__(
        self,
        agents: AgentSource,
        clients: AgentClients,
        *,
        detach_s: float = DETACH_S,
        state_key: str = "",
    ) -> None:
        """Offer agents.

        A call that takes longer than `detach_s` seconds becomes a task, if the client knows tasks.
        `state_key`, at least 32 bytes, seals the `requestState` of questions; servers that share it
        take each other's answers. Without it, the key is random.
        """
        self._detach_s = detach_s
        self._is_closing = False
        self._agents = agents
        self._clients = clients
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)
        self._group = asyncio.TaskGroup()
        server: Server[Any] = Server(
            _NAME,
            version=version("trunkline"),
            instructions=_INSTRUCTIONS,
            # Without this function, the SDK lists all tools before each call.
            get_tool_input_schema=find_input_schema,
            on_list_tools=self._list_tools,
            # The signature of a call knows no results of extensions.
            on_call_tool=self._call_tool,  # type: ignore[arg-type]
            on_subscriptions_listen=self._listen,
        )
        security = RequestStateSecurity(
            keys=[state_key or os.urandom(32)], ttl=_STATE_TTL_S, bind_principal=_read_principal
        )
        server.middleware.append(RequestStateBoundary(security, default_audience=_NAME))
        server.extensions[TASKS_EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get_task)
        server.add_request_handler("tasks/update", UpdateTaskParams, self._update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel_task)
        self.protocol_server = server
        """The server of the SDK, for a client in the same process."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AgentServer"]:
        """Watch the agents, and end cancellations, for the time of a block."""
        async with self._group:
            watch = self._group.create_task(self._watch())
            try:
                yield self
            finally:
                self._is_closing = True
                watch.cancel()
                self._listeners.close()

    async def serve_stdio(self) -> None:
        """Serve one client over stdin and stdout until stdin ends."""
        async with stdio_server() as (read_stream, write_stream):
            options = self.protocol_server.create_initialization_options(
                NotificationOptions(tools_changed=True)
            )
            await self.protocol_server.run(read_stream, write_stream, options)

    @asynccontextmanager
    async def http_app(
        self,
        host: str,
        *,
        max_sessions: int = _MAX_SESSIONS,
        session_idle_s: float = _SESSION_IDLE_S,
    ) -> AsyncIterator[Starlette]:
        """Yield the application that serves `/mcp` to any number of clients.

        On a loopback address, it serves requests for hosts and from pages of loopback only. A
        session can be used only with the credentials that opened it, and ends after
        `session_idle_s` without a request or an open stream. While there are `max_sessions`, new
        sessions are refused with 503. Requests of MCP 2026-07-28 and later have no sessions.
        """
        app = self.protocol_server.streamable_http_app(
            host=host, max_sessions=max_sessions, session_idle_timeout=session_idle_s
        )
        app.add_middleware(_IdentifyCaller)
        async with app.router.lifespan_context(app):
            yield app

    async def _watch(self) -> None:
        while True:
            await self._agents.wait_for_change()
            await self._bus.publish(ToolsListChanged())

    async def _list_tools(
        self, _context: RequestContext, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[agent.to_tool() for agent in self._agents.list_agents()]
        )

    async def _listen(
        self, context: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        # Notifications of tasks are not offered: the acknowledgement leaves them out.
        if (params.notifications.model_extra or {}).get("taskIds"):
            ClientFeatures.of(context).require_tasks()
        return await self._listeners(context, params)

    async def _call_tool(
        self, context: RequestContext, params: types.CallToolRequestParams
    ) -> CallResult:
        name = params.name
        self._check_offered(name)
        credentials = _read_credentials(context)
        try:
            async with self._clients.client(name, credentials) as client:
                call = AgentCall(name, client, context, detach_s=self._detach_s)
                try:
                    return await call.run(params)
                except asyncio.CancelledError:
                    if call.running is not None and not self._is_closing:
                        self._group.create_task(self._cancel_later(name, credentials, call.running))
                    raise
        except TrunklineError as error:
            return types.CallToolResult(
                content=[types.TextContent(text=_explain(error))], is_error=True
            )

    def _check_offered(self, name: str) -> None:
        """Check that an agent is offered. MCPError: it is not."""
        known = [agent.name for agent in self._agents.list_agents()]
        if name not in known:
            names = ", ".join(known) or "none"
            raise MCPError(types.INVALID_PARAMS, f"there is no agent {name!r}; there are: {names}")

    async def _cancel_later(
        self, agent: str, credentials: CallerCredentials, stream: ClientStream
    ) -> None:
        """Cancel the task of a call that the client has canceled, once its id is known."""
        try:
            async with (
                asyncio.timeout(_CANCEL_TIMEOUT_S),
                self._clients.client(agent, credentials) as client,
            ):
                while not stream.task_id:
                    await anext(stream)
                await stream.aclose()
                await cancel_task(client, TaskHandle.create(agent, stream.task_id))
        except StopAsyncIteration:
            return  # It answered without a task.
        except (TimeoutError, TrunklineError):
            # The client waits for no answer any more, and the task has a deadline.
            return

    async def _get_task(self, context: RequestContext, params: TaskParams) -> dict[str, Any]:
        features = ClientFeatures.of(context)

        async def get(client: Client, handle: TaskHandle) -> dict[str, Any]:
            return await get_task(client, handle, features)

        return await self._at_task(context, params.task_id, get)

    async def _update_task(
        self, context: RequestContext, params: UpdateTaskParams
    ) -> dict[str, Any]:
        async def update(client: Client, handle: TaskHandle) -> None:
            await update_task(client, handle, params.input_responses)

        await self._at_task(context, params.task_id, update)
        return {}

    async def _cancel_task(self, context: RequestContext, params: TaskParams) -> dict[str, Any]:
        await self._at_task(context, params.task_id, cancel_task)
        return {}

    async def _at_task(
        self,
        context: RequestContext,
        task_id: str,
        work: Callable[[Client, TaskHandle], Awaitable[_Result]],
    ) -> _Result:
        ClientFeatures.of(context).require_tasks()
        _check_name(context, task_id)
        try:
            handle = TaskHandle.parse(task_id)
            # The id is the client's, and may name an agent that is not offered to it.
            self._check_offered(handle.agent)
            async with self._clients.client(handle.agent, _read_credentials(context)) as client:
                return await work(client, handle)
        except TaskNotFoundError as error:
            raise MCPError(types.INVALID_PARAMS, _explain(error)) from None
        except TrunklineError as error:
            raise MCPError(types.INTERNAL_ERROR, _explain(error)) from None


class _IdentifyCaller:
    """Tells the SDK the caller of a request, so that callers can't share a session.

    The mesh checks the credentials with each call of an agent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            credentials = CallerCredentials.from_headers(Headers(scope=scope))
            if credentials.headers:
                token = AccessToken(token="", client_id=credentials.digest(), scopes=[])
                scope["user"] = AuthenticatedUser(token)
        await self._app(scope, receive, send)


def _check_name(context: RequestContext, task_id: str) -> None:
    """Check the header by which proxies route a request for a task, as SEP-2663 has it.

    MCPError: it names another task than the request.
    """
    header = getattr(context.request, "headers", {}).get(MCP_NAME_HEADER)
    if header is not None and decode_header_value(header) != task_id:
        problem = f"the header {MCP_NAME_HEADER} is not the taskId of the request"
        raise MCPError(types.HEADER_MISMATCH, problem)


def _read_credentials(context: RequestContext) -> CallerCredentials:
    # Over stdio there is no request.
    headers = getattr(context.request, "headers", None)
    return CallerCredentials() if headers is None else CallerCredentials.from_headers(headers)


def _read_principal(context: RequestContext) -> str | None:
    headers = _read_credentials(context).headers
    return json.dumps(headers) if headers else None


def _explain(error: TrunklineError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)
