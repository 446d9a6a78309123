"""Clients of the registry and of the tool adapter."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import TypeAlias

from trunkline.core.runtime import next_tick, sleep_until_tick
from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    UnsupportedOperationError,
)
from trunkline.mesh.client.channels import MeshChannel
from trunkline.mesh.client.methods import canceling, read_responses
from trunkline.v1 import (
    registry_service_pb2,
    registry_service_pb2_grpc,
    tool_service_pb2,
    tool_service_pb2_grpc,
)

# The adapter asks the authorization server, which may be slow.
SIGN_IN_TIMEOUT_S = 60.0
TOOL_SERVERS_TIMEOUT_S = 60.0
"""A call waits this long for MCP servers that are starting."""


class RegistryClient:
    """Calls RegistryService. Every method raises TrunklineErrors only."""

    def __init__(self, channel: MeshChannel) -> None:
        self.peer: str = channel.address
        self._stub = registry_service_pb2_grpc.RegistryServiceStub(channel)

    async def register(self, host: registry_service_pb2.Host) -> float:
        """Register a host or update its registration; return its lease in seconds."""
        request = registry_service_pb2.RegisterRequest(host=host)
        response = await self._stub.Register(request)
        return response.lease.ToNanoseconds() / 1e9

    async def keep_alive(
        self, host_id: str, load: registry_service_pb2.HostLoad | None = None
    ) -> float:
        """Renew a lease, and report the load of the host; return the lease's length in seconds.

        Raises:
            HostNotFoundError: the lease has ended or the registry was restarted; register again.
        """
        request = registry_service_pb2.KeepAliveRequest(host_id=host_id, load=load)
        response = await self._stub.KeepAlive(request)
        return response.lease.ToNanoseconds() / 1e9

    async def hold_lease(
        self,
        host_id: str,
        *,
        every_s: float,
        read_load: Callable[[], registry_service_pb2.HostLoad | None] = lambda: None,
    ) -> None:
        """Renew a lease at each multiple of `every_s` seconds, until canceled.

        Each renewal reports the load of the host, as `read_load` returns it.

        Raises:
            HostNotFoundError: the lease has ended or the registry was restarted; register again.
        """
        ended = asyncio.Event()
        with suppress(UnsupportedOperationError):
            try:
                await self._stub.HoldLease(_iter_renewals(host_id, every_s, read_load, ended))
            finally:
                ended.set()
            raise PeerUnavailableError(self.peer, "it ended the stream of renewals")
        # An older registry supports single renewals only.
        while True:
            await sleep_until_tick(every_s)
            await self.keep_alive(host_id, read_load())

    async def deregister(self, host_id: str) -> None:
        """Remove a host from the mesh. Repeating the call is harmless."""
        request = registry_service_pb2.DeregisterRequest(host_id=host_id)
        await self._stub.Deregister(request)

    async def release_journals(self, names: Sequence[str]) -> list[str]:
        """Free the journals with these ids or owners; return the ids of those that had an owner."""
        request = registry_service_pb2.ReleaseJournalsRequest(names=names)
        response = await self._stub.ReleaseJournals(request)
        return list(response.journal_ids)

    async def list_agents(self) -> list[registry_service_pb2.Host]:
        """Return the live hosts."""
        return list((await self.read_hosts()).hosts)

    async def read_hosts(self) -> registry_service_pb2.ListAgentsResponse:
        """Return the live hosts, and those whose leases ended."""
        request = registry_service_pb2.ListAgentsRequest()
        return await self._stub.ListAgents(request)

    def watch_agents(self) -> AsyncGenerator[registry_service_pb2.WatchAgentsResponse, None]:
        """Yield the live hosts now and after each change, until the registry goes away.

        A response with `loads` has nothing but changed loads. Close the iterator to end the call.
        """
        request = registry_service_pb2.WatchAgentsRequest(with_loads=True)
        return read_responses(self._stub.WatchAgents(request))


async def _iter_renewals(
    host_id: str,
    every_s: float,
    read_load: Callable[[], registry_service_pb2.HostLoad | None],
    ended: asyncio.Event,
) -> AsyncIterator[registry_service_pb2.HoldLeaseRequest]:
    """Yield a renewal now and at each multiple of `every_s` seconds, until `ended` is set."""
    loop = asyncio.get_running_loop()
    while not ended.is_set():
        yield registry_service_pb2.HoldLeaseRequest(host_id=host_id, load=read_load())
        with suppress(TimeoutError):
            async with asyncio.timeout_at(next_tick(loop.time(), every_s)):
                await ended.wait()


ListedTools: TypeAlias = tool_service_pb2.ListToolsResponse | tool_service_pb2.WatchToolsResponse
"""The tools of some servers, and the servers' states."""


def _is_starting(listing: ListedTools) -> bool:
    starting = tool_service_pb2.TOOL_SERVER_STATE_STARTING
    return any(server.state == starting for server in listing.servers)


class ToolClient:
    """Calls ToolService. Every method raises TrunklineErrors only."""

    def __init__(self, channel: MeshChannel) -> None:
        self.channel: MeshChannel = channel
        self._breaker = channel.breaker
        self._stub: tool_service_pb2_grpc.ToolServiceAsyncStub = (
            tool_service_pb2_grpc.ToolServiceStub(channel)
        )

    async def list_tools(self, servers: tuple[str, ...] = ()) -> tool_service_pb2.ListToolsResponse:
        """Return the available tools of some servers (by default all), and the servers' states."""
        request = tool_service_pb2.ListToolsRequest(servers=servers)
        with self._breaker.guard():
            return await self._stub.ListTools(request)

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

    async def call_tool(
        self, request: tool_service_pb2.CallToolRequest
    ) -> AsyncGenerator[tool_service_pb2.CallToolResponse, None]:
        """Call a tool: yield its progress, and last its result.

        Closing the iterator before the result cancels the tool. The request's deadline is the
        call's. If a response has a task, the call became that task, which then has to be canceled
        by `cancel_tool_task`.

        Raises:
            PeerProtocolError: the adapter ends the call without a result.
            TrunklineError: the call failed, for example with ToolNotFoundError or
                ToolServerUnavailableError.
        """
        timeout_s = remaining_s(request)
        with (
            self._breaker.guard(has_deadline=timeout_s is not None),
            canceling(self._stub.CallTool(request, timeout=timeout_s)) as responses,
        ):
            async for response in responses:
                if response.HasField("result"):
                    break
                yield response
            else:
                raise PeerProtocolError("the tool adapter", "a call ended without a result")
        # The call has ended for the breaker, whatever its reader does with the result.
        yield response

    async def cancel_tool_task(self, request: tool_service_pb2.CancelToolTaskRequest) -> None:
        """Tell an MCP server that a task is wanted no more."""
        with self._breaker.guard():
            await self._stub.CancelToolTask(request)

    async def start_sign_in(self, server: str, redirect_uri: str) -> str:
        """Begin a sign-in to an MCP server; return the URL that a person opens.

        Raises:
            InvalidArgumentError: the server is unknown, or nobody signs in to it.
            SignInFailedError: it does not say where to sign in, or can't be used.
        """
        request = tool_service_pb2.StartSignInRequest(server=server, redirect_uri=redirect_uri)
        with self._breaker.guard():
            response = await self._stub.StartSignIn(request, timeout=SIGN_IN_TIMEOUT_S)
        return response.url

    async def complete_sign_in(self, server: str, answer: Mapping[str, str]) -> None:
        """End a sign-in by the parameters of the redirect.

        Raises:
            SignInFailedError: no sign-in has this `state`, or it is refused.
        """
        request = tool_service_pb2.CompleteSignInRequest(server=server, answer=answer)
        with self._breaker.guard():
            await self._stub.CompleteSignIn(request, timeout=SIGN_IN_TIMEOUT_S)

    def watch_tools(
        self, servers: tuple[str, ...] = ()
    ) -> AsyncGenerator[tool_service_pb2.WatchToolsResponse, None]:
        """Yield the tools now and after each change. Close the iterator to end the call."""
        request = tool_service_pb2.WatchToolsRequest(servers=servers)
        return read_responses(self._stub.WatchTools(request))


def remaining_s(request: tool_service_pb2.CallToolRequest) -> float | None:
    """Return the seconds left until a call's deadline, at least 0; None without a deadline."""
    if not request.HasField("deadline"):
        return None
    remaining = request.deadline.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    return max(remaining.total_seconds(), 0.0)
