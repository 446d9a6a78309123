"""A host's membership of the mesh, from its start to its end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from trunkline.errors import HostNotFoundError, PeerError, TrunklineError
from trunkline.mesh.client import Backoff, RegistryClient, run_in_background
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# The time for deregistration. If it fails, the lease ends a little later.
_LEAVE_TIMEOUT_S = 2.0
# The longest pause between two attempts to register.
_RETRY_LIMIT_S = 2.0


class Membership:
    """Registers a host, renews its lease, registers it again if needed, and deregisters it.

    An async context manager. To enter it succeeds even if the registry is unavailable; it then
    retries in the background. `registered` is set from each successful registration until the
    registry reports the loss of the lease, or `update`.
    """

    def __init__(
        self,
        client: RegistryClient,
        host: registry_service_pb2.Host,
        *,
        read_load: Callable[[], registry_service_pb2.HostLoad | None] = lambda: None,
    ) -> None:
        """`read_load` returns the load of the host, which each renewal reports."""
        self._client = client
        self._host = host
        self._read_load = read_load
        self._open = AsyncExitStack()
        self._lease_s = 0.0
        self._changed = asyncio.Event()
        self.registered: asyncio.Event = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Register, unless the registry is unavailable.

        Raises:
            RequestError: the registry refuses the host, for example InvalidArgumentError.
        """
        try:
            await self._register()
        except PeerError as error:
            extra = {"reason": error.reason, "problem": str(error)}
            logger.info("registry.away", extra=extra)
        await self._open.enter_async_context(run_in_background(self._run()))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._open.aclose()
        self.registered.clear()
        # Also if `registered` is not set, because a response of the registry may have been lost.
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._client.deregister(self._host.host_id)
        except (TimeoutError, TrunklineError):
            logger.info("registry.not_told", extra={"host_id": self._host.host_id})

    def update(self, host: registry_service_pb2.Host) -> None:
        """Replace the registration. `registered` is cleared until the registry has the new one."""
        self._host = host
        self.registered.clear()
        self._changed.set()

    async def _run(self) -> None:
        while True:
            if not self.registered.is_set():
                await self._retry(self._register)
            async with run_in_background(self._retry(self._hold)):
                await self._changed.wait()

    async def _retry(self, call: Callable[[], Awaitable[None]]) -> None:
        # A pause longer than the lease would lose it.
        backoff = Backoff(limit_s=min(_RETRY_LIMIT_S, self._lease_s / 3 or _RETRY_LIMIT_S))
        logged = ""
        while True:
            started_s = time.monotonic()
            try:
                await call()
            except TrunklineError as error:
                if 0 < self._lease_s < time.monotonic() - started_s:
                    # The call worked for a while before it failed. Without a lease, it never did.
                    backoff.reset()
                    logged = ""
                # Every refusal is retried, because a journal of another owner may be released.
                if error.reason != logged:
                    extra = {"reason": error.reason, "problem": str(error)}
                    logger.warning("registry.refused", extra=extra)
                logged = error.reason
                await backoff.pause()
            else:
                return

    async def _hold(self) -> None:
        try:
            await self._client.hold_lease(
                self._host.host_id, every_s=self._lease_s / 3, read_load=self._read_load
            )
        except HostNotFoundError:
            self.update(self._host)

    async def _register(self) -> None:
        self._changed.clear()
        self._lease_s = await self._client.register(self._host)
        if not self._changed.is_set():
            self.registered.set()
