"""Serves trunkline.v1.RegistryService from memory: hosts register again after a restart."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc
from google.protobuf import duration_pb2

from trunkline.client import run_in_background
from trunkline.registry.leases import LeaseTable
from trunkline.v1 import registry_service_pb2, registry_service_pb2_grpc

logger = logging.getLogger(__name__)

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class RegistryServicer(registry_service_pb2_grpc.RegistryServiceServicer):
    """The registry. An async context manager: leases end, and watches last, while it is open."""

    def __init__(self, lease_s: float = 10.0) -> None:
        self._leases = LeaseTable(lease_s=lease_s, clock=time.monotonic)
        # Until then hosts of before a restart may still come back.
        self._whole_at = time.monotonic() + lease_s
        self._is_partial = True
        self._looked_at = time.monotonic()
        self._news = asyncio.Event()
        self._is_closing = False
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(run_in_background(self._sweep()))
        self._open.callback(self._close)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._open.__aexit__(exc_type, exc_val, exc_tb)

    async def Register(
        self, request: registry_service_pb2.RegisterRequest, _context: _Context
    ) -> registry_service_pb2.RegisterResponse:
        self._look()
        self._leases.register(request.host)
        self._tell()
        fields = {"host_id": request.host.host_id, "address": request.host.address}
        logger.info("host.registered", extra=fields)
        return registry_service_pb2.RegisterResponse(lease=self._lease())

    async def KeepAlive(
        self, request: registry_service_pb2.KeepAliveRequest, _context: _Context
    ) -> registry_service_pb2.KeepAliveResponse:
        self._look()
        self._leases.renew(request.host_id)
        return registry_service_pb2.KeepAliveResponse(lease=self._lease())

    async def HoldLease(
        self,
        requests: AsyncIterator[registry_service_pb2.HoldLeaseRequest],
        _context: _Context,
    ) -> registry_service_pb2.HoldLeaseResponse:
        async for request in requests:
            self._look()
            self._leases.renew(request.host_id)
        return registry_service_pb2.HoldLeaseResponse()

    async def Deregister(
        self, request: registry_service_pb2.DeregisterRequest, _context: _Context
    ) -> registry_service_pb2.DeregisterResponse:
        self._leases.remove(request.host_id)
        self._tell()
        return registry_service_pb2.DeregisterResponse()

    async def ListAgents(
        self, _request: registry_service_pb2.ListAgentsRequest, _context: _Context
    ) -> registry_service_pb2.ListAgentsResponse:
        return registry_service_pb2.ListAgentsResponse(hosts=self._hosts())

    async def WatchAgents(
        self, _request: registry_service_pb2.WatchAgentsRequest, _context: _Context
    ) -> AsyncIterator[registry_service_pb2.WatchAgentsResponse]:
        sent = 0
        while not self._is_closing:
            news = self._news
            hosts = self._hosts()
            if self._leases.revision != sent:
                sent = self._leases.revision
                # Changes that come while this is on its way make one more picture, not many.
                yield registry_service_pb2.WatchAgentsResponse(
                    revision=sent, hosts=hosts, is_partial=self._is_partial
                )
            else:
                await news.wait()

    def _hosts(self) -> list[registry_service_pb2.Host]:
        self._look()
        now = datetime.now(UTC)
        hosts = []
        for host, left_s in self._leases.list_live():
            shown = registry_service_pb2.Host()
            shown.CopyFrom(host)
            shown.lease_expire_time.FromDatetime(now + timedelta(seconds=left_s))
            hosts.append(shown)
        return hosts

    def _lease(self) -> duration_pb2.Duration:
        lease = duration_pb2.Duration()
        lease.FromTimedelta(timedelta(seconds=self._leases.lease_s))
        return lease

    def _tell(self) -> None:
        """Wake the watchers and the sweep."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _close(self) -> None:
        self._is_closing = True
        self._tell()

    def _look(self) -> None:
        """See whether this process was frozen: hosts are not to blame for what it didn't hear."""
        now = time.monotonic()
        unseen_s = now - self._looked_at
        self._looked_at = now
        if unseen_s > self._leases.lease_s / 2:
            logger.warning("registry.was_frozen", extra={"seconds": round(unseen_s, 1)})
            self._leases.extend(unseen_s)

    async def _sweep(self) -> None:
        while True:
            news = self._news
            # A renewal only makes a lease longer: waking at its old end is early, never late.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._next_look_s()):
                    await news.wait()
            self._look()
            before = self._leases.revision
            self._leases.expire()
            if self._leases.revision != before:
                logger.warning("host.lost", extra={"left": len(self._leases.list_live())})
                self._tell()
            if self._is_partial and time.monotonic() >= self._whole_at:
                self._is_partial = False
                self._leases.revision += 1
                self._tell()

    def _next_look_s(self) -> float:
        ends = [self._leases.next_expiry_s(), self._leases.lease_s / 4]
        return min(end for end in ends if end is not None)
