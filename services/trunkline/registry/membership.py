"""A host's place on the mesh, held for as long as the host lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from trunkline.client import Backoff, RegistryClient, running
from trunkline.errors import HostNotFoundError, PeerError, TrunklineError
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# Leaving politely is worth a moment, and no more: the lease runs out by itself.
_LEAVE_TIMEOUT_S = 2.0
_RETRY_LIMIT_S = 2.0


class Membership:
    """Registers a host, keeps its lease, registers it again when it was forgotten, and leaves.

    An async context manager. A refusal at the first try is raised on entering; while the registry
    can't be reached, entering succeeds and the host goes on trying. `registered` is set while the
    host is on the mesh as far as it knows.
    """

    def __init__(self, client: RegistryClient, host: registry_service_pb2.Host) -> None:
        self._client = client
        self._host = host
        self._open = AsyncExitStack()
        self._lease_s = 0.0
        self._is_changed = asyncio.Event()
        self.registered = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Register.

        Raises:
            AgentNameTakenError: another living host has one of its agents.
        """
        try:
            await self._register()
        except PeerError as error:
            logger.info("registry.away", extra={"reason": error.reason})
        await self._open.enter_async_context(running(self._stay()))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._open.aclose()
        self.registered.clear()
        # Also when it isn't registered as far as it knows: the answer may have been on its way.
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._client.deregister(self._host.host_id)
        except (TimeoutError, TrunklineError):
            logger.info("registry.not_told", extra={"host_id": self._host.host_id})

    def update(self, host: registry_service_pb2.Host) -> None:
        """Tell the registry something else of the host, as soon as it can be reached.

        `registered` is cleared until it knows.
        """
        self._host = host
        self.registered.clear()
        self._is_changed.set()

    async def _stay(self) -> None:
        while True:
            if not self.registered.is_set():
                await self._insist(self._register)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / 3):
                    await self._is_changed.wait()
            if not self._is_changed.is_set():
                await self._insist(self._renew)

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        # Of a short lease not much may be lost between two tries.
        backoff = Backoff(limit_s=min(_RETRY_LIMIT_S, self._lease_s / 3 or _RETRY_LIMIT_S))
        told = ""
        while True:
            try:
                await call()
            except TrunklineError as error:
                # Also a name that was taken meanwhile may become free again.
                if error.reason != told:
                    logger.warning("registry.refused", extra={"reason": error.reason})
                told = error.reason
                await backoff.pause()
            else:
                return

    async def _renew(self) -> None:
        try:
            self._lease_s = await self._client.keep_alive(self._host.host_id)
        except HostNotFoundError:
            self.registered.clear()

    async def _register(self) -> None:
        self._is_changed.clear()
        self._lease_s = await self._client.register(self._host)
        if not self._is_changed.is_set():
            self.registered.set()
