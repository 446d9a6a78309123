"""A host's place on the mesh, held for as long as the host lives."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from trunkline.client import Backoff, RegistryClient, run_in_background
from trunkline.errors import AgentNameTakenError, HostNotFoundError, PeerError, TrunklineError
from trunkline.runtime import StandbyAgents
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)

# Leaving politely is worth a moment, and no more: the lease runs out by itself.
_LEAVE_TIMEOUT_S = 2.0
_RETRY_LIMIT_S = 2.0


class Membership:
    """Registers a host, keeps its lease, registers it again when it was forgotten, and leaves.

    An async context manager. While the registry can't be reached, entering succeeds and the host
    goes on trying. `registered` is set while the host is on the mesh as far as it knows. Agents
    that another living host has are on `standby`: the host is there without them.
    """

    def __init__(self, client: RegistryClient, host: registry_service_pb2.Host) -> None:
        self._client = client
        self._host = host
        self._open = AsyncExitStack()
        self._lease_s = 0.0
        self._is_changed = asyncio.Event()
        self._taken: frozenset[str] = frozenset()
        self.registered = asyncio.Event()
        self.standby = StandbyAgents()

    async def __aenter__(self) -> Self:
        """Register. Raises what the registry refuses it with, for example InvalidArgumentError."""
        try:
            await self._register()
        except PeerError as error:
            logger.info("registry.away", extra={"reason": error.reason})
        await self._open.enter_async_context(run_in_background(self._stay()))
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

    def claim_names(self, names: frozenset[str]) -> None:
        """Try to register agents that are on standby: whoever had their names is gone."""
        if names & self._taken:
            self._taken -= names
            self.update(self._host)

    async def _stay(self) -> None:
        while True:
            if not self.registered.is_set():
                await self._insist(self._register)
            async with run_in_background(self._insist(self._hold)):
                await self._is_changed.wait()

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        # Of a short lease not much may be lost between two tries.
        backoff = Backoff(limit_s=min(_RETRY_LIMIT_S, self._lease_s / 3 or _RETRY_LIMIT_S))
        told = ""
        while True:
            began_s = time.monotonic()
            try:
                await call()
            except TrunklineError as error:
                if time.monotonic() - began_s > self._lease_s:
                    # All was well for a while.
                    backoff.reset()
                    told = ""
                # Also a name that was taken meanwhile may become free again.
                if error.reason != told:
                    logger.warning("registry.refused", extra={"reason": error.reason})
                told = error.reason
                await backoff.pause()
            else:
                return

    async def _hold(self) -> None:
        try:
            await self._client.hold_lease(self._host.host_id, every_s=self._lease_s / 3)
        except HostNotFoundError:
            self.update(self._host)

    async def _register(self) -> None:
        self._is_changed.clear()
        while True:
            try:
                self._lease_s = await self._client.register(_without(self._host, self._taken))
                break
            except AgentNameTakenError as error:
                if error.agent in self._taken:
                    raise
                self._taken |= {error.agent}
                extra = {"agent": error.agent, "served_at": error.address}
                logger.info("agent.on_standby", extra=extra)
        self.standby.update(self._taken)
        if not self._is_changed.is_set():
            self.registered.set()


def _without(host: registry_service_pb2.Host, taken: frozenset[str]) -> registry_service_pb2.Host:
    if not taken:
        return host
    left = registry_service_pb2.Host()
    left.CopyFrom(host)
    del left.agents[:]
    left.agents.extend(agent for agent in host.agents if agent.card.name not in taken)
    left.standby_agents.extend(sorted(taken))
    return left
