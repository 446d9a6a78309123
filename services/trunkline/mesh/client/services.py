"""Clients of the mesh's own services: the registry, the tool adapter and the span store."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TypeAlias

import grpc

from trunkline.core.runtime import next_tick, sleep_until_tick
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    UnsupportedOperationError,
)
from trunkline.mesh.client.channels import channel_breaker, peer_address
from trunkline.mesh.client.host import UNARY_TIMEOUT_S
from trunkline.mesh.client.statements import find_statement, statement_metadata
from trunkline.mesh.client.status import translate_errors
from trunkline.v1 import (
    registry_service_pb2,
    registry_service_pb2_grpc,
    tool_service_pb2,
    tool_service_pb2_grpc,
    trace_service_pb2,
    trace_service_pb2_grpc,
)

# Short, because the registry answers from memory and a lease must not end while a call hangs.
REGISTRY_TIMEOUT_S = 5.0
# The adapter asks the authorization server, which may be slow.
SIGN_IN_TIMEOUT_S = 60.0
TOOL_SERVERS_TIMEOUT_S = 60.0
"""A call waits this long for MCP servers that are starting."""

OnProgress: TypeAlias = Callable[[tool_service_pb2.ToolProgress], Awaitable[None]]
OnTask: TypeAlias = Callable[[str], Awaitable[None]]
"""Called with the handle of the task that a call became."""

_HoldLeaseCall: TypeAlias = grpc.aio.StreamUnaryCall[
    registry_service_pb2.HoldLeaseRequest, registry_service_pb2.HoldLeaseResponse
]


class RegistryClient:
    """Calls RegistryService. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.peer: str = peer_address(channel)
        self._stub = registry_service_pb2_grpc.RegistryServiceStub(channel)

    async def register(self, host: registry_service_pb2.Host) -> float:
        """Register a host or update its registration; return its lease in seconds.

        Raises:
            AgentNameTakenError: another live host has one of its agents.
        """
        request = registry_service_pb2.RegisterRequest(host=host)
        with translate_errors(self.peer):
            response = await self._stub.Register(request, timeout=REGISTRY_TIMEOUT_S)
        return response.lease.ToNanoseconds() / 1e9

    async def keep_alive(self, host_id: str) -> float:
        """Renew a lease; return its length in seconds.

        Raises:
            HostNotFoundError: the lease has ended or the registry was restarted; register again.
        """
        request = registry_service_pb2.KeepAliveRequest(host_id=host_id)
        with translate_errors(self.peer):
            response = await self._stub.KeepAlive(request, timeout=REGISTRY_TIMEOUT_S)
        return response.lease.ToNanoseconds() / 1e9

    async def hold_lease(self, host_id: str, *, every_s: float) -> None:
        """Renew a lease at once, then at each multiple of `every_s` seconds, until canceled.

        Raises:
            HostNotFoundError: the lease has ended or the registry was restarted; register again.
        """
        with suppress(UnsupportedOperationError), translate_errors(self.peer):
            await self._hold(self._stub.HoldLease(), host_id, every_s)
        # An older registry supports single renewals only.
        while True:
            await self.keep_alive(host_id)
            await sleep_until_tick(every_s)

    async def _hold(self, call: _HoldLeaseCall, host_id: str, every_s: float) -> None:
        loop, end_event = asyncio.get_running_loop(), asyncio.Event()
        call.add_done_callback(lambda _: end_event.set())
        request = registry_service_pb2.HoldLeaseRequest(host_id=host_id)
        try:
            while not end_event.is_set():
                await self._renew(call, request)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_tick(loop.time(), every_s)):
                        await end_event.wait()
            await call
            raise PeerUnavailableError(self.peer, "it ended the stream of renewals")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # gRPC cancels the call when the channel is closed.
            raise PeerUnavailableError(self.peer, "its channel is closed") from None
        finally:
            call.cancel()

    async def _renew(
        self, call: _HoldLeaseCall, request: registry_service_pb2.HoldLeaseRequest
    ) -> None:
        try:
            async with asyncio.timeout(REGISTRY_TIMEOUT_S):
                await call.write(request)
        except TimeoutError:
            raise PeerTimeoutError(
                self.peer, f"it took no renewal in {REGISTRY_TIMEOUT_S:g} s"
            ) from None
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The call is over. Awaiting it raises the reason.
            return

    async def deregister(self, host_id: str) -> None:
        """Remove a host from the mesh. Repeating the call is harmless."""
        request = registry_service_pb2.DeregisterRequest(host_id=host_id)
        with translate_errors(self.peer):
            await self._stub.Deregister(request, timeout=REGISTRY_TIMEOUT_S)

    async def release_journals(self, names: Sequence[str]) -> list[str]:
        """Free the journals with these ids or owners; return the ids of those that had an owner."""
        request = registry_service_pb2.ReleaseJournalsRequest(names=names)
        with translate_errors(self.peer):
            response = await self._stub.ReleaseJournals(request, timeout=REGISTRY_TIMEOUT_S)
        return list(response.journal_ids)

    async def list_agents(self) -> list[registry_service_pb2.Host]:
        """Return the live hosts."""
        return list((await self.read_hosts()).hosts)

    async def read_hosts(self) -> registry_service_pb2.ListAgentsResponse:
        """Return the live hosts, and those whose leases ended."""
        request = registry_service_pb2.ListAgentsRequest()
        with translate_errors(self.peer):
            return await self._stub.ListAgents(request, timeout=REGISTRY_TIMEOUT_S)

    async def watch_agents(self) -> AsyncGenerator[registry_service_pb2.WatchAgentsResponse, None]:
        """Yield the live hosts now and after each change, until the registry goes away.

        Close the iterator to end the call.
        """
        with translate_errors(self.peer):
            call = self._stub.WatchAgents(registry_service_pb2.WatchAgentsRequest())
        try:
            with translate_errors(self.peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()


ListedTools: TypeAlias = tool_service_pb2.ListToolsResponse | tool_service_pb2.WatchToolsResponse
"""The tools of some servers, and the servers' states."""


def _is_starting(listing: ListedTools) -> bool:
    starting = tool_service_pb2.TOOL_SERVER_STATE_STARTING
    return any(server.state == starting for server in listing.servers)


class ToolClient:
    """Calls ToolService. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._peer = peer_address(channel)
        self._breaker = channel_breaker(channel)
        self._stub = tool_service_pb2_grpc.ToolServiceStub(channel)

    async def list_tools(self, servers: tuple[str, ...] = ()) -> tool_service_pb2.ListToolsResponse:
        """Return the available tools of some servers (by default all), and the servers' states."""
        request = tool_service_pb2.ListToolsRequest(servers=servers)
        with self._breaker.guard(), translate_errors(self._peer):
            return await self._stub.ListTools(request, timeout=UNARY_TIMEOUT_S)

    async def wait_for_tools(
        self, servers: tuple[str, ...] = (), *, timeout_s: float
    ) -> ListedTools:
        """Return what `list_tools` does, once no server is starting, or after `timeout_s`."""
        response: ListedTools = await self.list_tools(servers)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if _is_starting(response):
                    async with aclosing(self.watch_tools(servers)) as lists:
                        async for response in lists:
                            if not _is_starting(response):
                                break
        return response

    async def list_known_tools(self) -> ListedTools:
        """Return the tools of all servers that are known now, without waiting for any server.

        Raises:
            PeerProtocolError: the adapter ends the call without a list.
        """
        async with aclosing(self.watch_tools()) as lists:
            async for response in lists:
                return response
        raise PeerProtocolError("the tool adapter", "a call ended without a list")

    @asynccontextmanager
    async def call_tool(
        self, request: tool_service_pb2.CallToolRequest
    ) -> AsyncIterator[AsyncIterator[tool_service_pb2.CallToolResponse]]:
        """Call a tool; leaving the block before the result cancels the call.

        The request's deadline is the call's. Iterating raises the errors, for example
        ToolNotFoundError and ToolServerUnavailableError.
        """
        metadata = statement_metadata(await find_statement(self._channel, request))
        timeout_s = remaining_s(request)
        with self._breaker.guard(has_deadline=timeout_s is not None):
            with translate_errors(self._peer):
                call = self._stub.CallTool(request, timeout=timeout_s, metadata=metadata)

            async def responses() -> AsyncIterator[tool_service_pb2.CallToolResponse]:
                with translate_errors(self._peer):
                    async for response in call:
                        yield response

            try:
                yield responses()
            finally:
                call.cancel()

    async def fetch_result(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask | None = None,
    ) -> tool_service_pb2.ToolResult:
        """Call a tool and return its result. Cancellation cancels the tool.

        `on_task` is called with the handle if the call becomes a task, which then has to be
        canceled by `cancel_tool_task`.
        """
        async with self.call_tool(request) as responses:
            async for response in responses:
                match response.WhichOneof("payload"):
                    case "progress":
                        await on_progress(response.progress)
                    case "task" if on_task is not None:
                        await on_task(response.task.handle)
                    case "result":
                        return response.result
        raise PeerProtocolError("the tool adapter", "a call ended without a result")

    async def cancel_tool_task(self, request: tool_service_pb2.CancelToolTaskRequest) -> None:
        """Tell an MCP server that a task is wanted no more."""
        with self._breaker.guard(), translate_errors(self._peer):
            await self._stub.CancelToolTask(request, timeout=UNARY_TIMEOUT_S)

    async def start_sign_in(self, server: str, redirect_uri: str) -> str:
        """Begin a sign-in to an MCP server; return the URL that a person opens.

        Raises:
            InvalidArgumentError: the server is unknown, or nobody signs in to it.
            SignInFailedError: it does not say where to sign in, or can't be used.
        """
        request = tool_service_pb2.StartSignInRequest(server=server, redirect_uri=redirect_uri)
        with self._breaker.guard(), translate_errors(self._peer):
            response = await self._stub.StartSignIn(request, timeout=SIGN_IN_TIMEOUT_S)
        return response.url

    async def complete_sign_in(self, server: str, answer: Mapping[str, str]) -> None:
        """End a sign-in by the parameters of the redirect.

        Raises:
            SignInFailedError: no sign-in has this `state`, or it is refused.
        """
        request = tool_service_pb2.CompleteSignInRequest(server=server, answer=answer)
        with self._breaker.guard(), translate_errors(self._peer):
            await self._stub.CompleteSignIn(request, timeout=SIGN_IN_TIMEOUT_S)

    async def watch_tools(
        self, servers: tuple[str, ...] = ()
    ) -> AsyncGenerator[tool_service_pb2.WatchToolsResponse, None]:
        """Yield the tools now and after each change. Close the iterator to end the call."""
        with translate_errors(self._peer):
            call = self._stub.WatchTools(tool_service_pb2.WatchToolsRequest(servers=servers))
        try:
            with translate_errors(self._peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()


def remaining_s(request: tool_service_pb2.CallToolRequest) -> float | None:
    """Return the seconds left until a call's deadline, at least 0; None without a deadline."""
    if not request.HasField("deadline"):
        return None
    remaining = request.deadline.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    return max(remaining.total_seconds(), 0.0)


class TraceClient:
    """Calls TraceService. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._peer = peer_address(channel)
        self._stub = trace_service_pb2_grpc.TraceServiceStub(channel)

    async def get_trace(
        self, trace_id: str = "", task_id: str = ""
    ) -> list[trace_service_pb2.Span]:
        """Return the spans of a trace, or of the traces of a task's turns, by start time.

        Raises:
            TraceNotFoundError: the store has none.
        """
        request = trace_service_pb2.GetTraceRequest(trace_id=trace_id, task_id=task_id)
        with translate_errors(self._peer):
            response = await self._stub.GetTrace(request, timeout=UNARY_TIMEOUT_S)
        return list(response.spans)

    async def list_traces(
        self, page_size: int = 0, page_token: str = ""
    ) -> trace_service_pb2.ListTracesResponse:
        """Return a page of traces, newest first."""
        request = trace_service_pb2.ListTracesRequest(page_size=page_size, page_token=page_token)
        with translate_errors(self._peer):
            return await self._stub.ListTraces(request, timeout=UNARY_TIMEOUT_S)

    async def watch_traces(
        self,
    ) -> AsyncGenerator[trace_service_pb2.WatchTracesResponse, None]:
        """Yield traces as their spans arrive. Close the iterator to end the call.

        The first response is empty: the watch has begun.
        """
        with translate_errors(self._peer):
            call = self._stub.WatchTraces(trace_service_pb2.WatchTracesRequest())
        try:
            with translate_errors(self._peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()

    async def watch_edges(self) -> AsyncGenerator[trace_service_pb2.WatchEdgesResponse, None]:
        """Yield who called whom in the last minute, now and after each change."""
        with translate_errors(self._peer):
            call = self._stub.WatchEdges(trace_service_pb2.WatchEdgesRequest())
        try:
            with translate_errors(self._peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()
