"""Calls to the registry."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TypeAlias

import grpc

from trunkline.beats import next_beat, until_beat
from trunkline.client.channels import peer_of
from trunkline.client.status import mesh_errors
from trunkline.errors import PeerTimeoutError, PeerUnavailableError, UnsupportedOperationError
from trunkline.v1 import registry_service_pb2, registry_service_pb2_grpc

# Short: the registry answers from memory, and a lease must not run out while a call hangs.
TIMEOUT_S = 5.0

_Holding: TypeAlias = grpc.aio.StreamUnaryCall[
    registry_service_pb2.HoldLeaseRequest, registry_service_pb2.HoldLeaseResponse
]


class RegistryClient:
    """The registry as hosts and readers see it. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.peer = peer_of(channel)
        self._stub = registry_service_pb2_grpc.RegistryServiceStub(channel)

    async def register(self, host: registry_service_pb2.Host) -> float:
        """Put a host on the mesh, or replace what it said before; return its lease in seconds.

        Raises:
            AgentNameTakenError: another living host has one of its agents.
        """
        request = registry_service_pb2.RegisterRequest(host=host)
        with mesh_errors(self.peer):
            response = await self._stub.Register(request, timeout=TIMEOUT_S)
        return response.lease.ToNanoseconds() / 1e9

    async def keep_alive(self, host_id: str) -> float:
        """Renew a lease; return how long it holds now, in seconds.

        Raises:
            HostNotFoundError: it has run out, or the registry was started anew; register again.
        """
        request = registry_service_pb2.KeepAliveRequest(host_id=host_id)
        with mesh_errors(self.peer):
            response = await self._stub.KeepAlive(request, timeout=TIMEOUT_S)
        return response.lease.ToNanoseconds() / 1e9

    async def hold_lease(self, host_id: str, *, every_s: float) -> None:
        """Renew a lease at once and then on every beat of so many seconds, until this is canceled.

        Raises:
            HostNotFoundError: it has run out, or the registry was started anew; register again.
        """
        with suppress(UnsupportedOperationError), mesh_errors(self.peer):
            await self._hold(self._stub.HoldLease(), host_id, every_s)
        # A registry of before knows single renewals alone.
        while True:
            await self.keep_alive(host_id)
            await until_beat(every_s)

    async def _hold(self, call: _Holding, host_id: str, every_s: float) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        call.add_done_callback(lambda _: over.set())
        request = registry_service_pb2.HoldLeaseRequest(host_id=host_id)
        try:
            while not over.is_set():
                await self._renew(call, request)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_beat(loop.time(), every_s)):
                        await over.wait()
            await call
            raise PeerUnavailableError(self.peer, "it ended the stream of renewals")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # By gRPC: somebody closed the channel.
            raise PeerUnavailableError(self.peer, "its channel is closed") from None
        finally:
            call.cancel()

    async def _renew(self, call: _Holding, request: registry_service_pb2.HoldLeaseRequest) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await call.write(request)
        except TimeoutError:
            raise PeerTimeoutError(self.peer, f"it took no renewal in {TIMEOUT_S:g} s") from None
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # It is over: whoever waits for its end hears why.
            return

    async def deregister(self, host_id: str) -> None:
        """Take a host off the mesh. Repeating it is harmless."""
        request = registry_service_pb2.DeregisterRequest(host_id=host_id)
        with mesh_errors(self.peer):
            await self._stub.Deregister(request, timeout=TIMEOUT_S)

    async def list_agents(self) -> list[registry_service_pb2.Host]:
        """Return the living hosts."""
        request = registry_service_pb2.ListAgentsRequest()
        with mesh_errors(self.peer):
            response = await self._stub.ListAgents(request, timeout=TIMEOUT_S)
        return list(response.hosts)

    async def watch_agents(self) -> AsyncGenerator[registry_service_pb2.WatchAgentsResponse, None]:
        """Yield the living hosts now and whenever they change, until the registry goes away.

        Close the iterator to end the call.
        """
        with mesh_errors(self.peer):
            call = self._stub.WatchAgents(registry_service_pb2.WatchAgentsRequest())
        try:
            with mesh_errors(self.peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()
