"""A host's membership of the mesh, from its start to its end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
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
    """Registers a host at each registry of the mesh, and deregisters it at the end.

    An async context manager. To enter it succeeds even if no registry is available; it then
    retries in the background. `joined` is set by the first registration. `registered` is set while
    a registry has the latest registration, and each other one has it or did not answer the last
    call.
    """

    def __init__(
        self,
        registries: Sequence[RegistryClient],
        host: registry_service_pb2.Host,
        *,
        read_load: Callable[[], registry_service_pb2.HostLoad | None] = lambda: None,
    ) -> None:
        """`read_load` returns the load of the host, which each renewal reports."""
        self._described_ns = 0
        self._stamp(host)
        self._registrations = [
            _Registration(client, host, read_load, self._note_change) for client in registries
        ]
        self._open = AsyncExitStack()
        self._has_changed = asyncio.Event()
        self.joined: asyncio.Event = asyncio.Event()
        self.registered: asyncio.Event = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Register at one registry, unless none is available.

        Raises:
            RequestError: a registry refuses the host, for example InvalidArgumentError.
        """
        async with AsyncExitStack() as stack:
            for registration in self._registrations:
                await stack.enter_async_context(run_in_background(registration.run()))
            while not self._has_first_answer():
                await self._has_changed.wait()
                self._has_changed.clear()
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._open.aclose()
        self.registered.clear()
        async with asyncio.TaskGroup() as group:
            for registration in self._registrations:
                group.create_task(registration.deregister())

    def update(self, host: registry_service_pb2.Host) -> None:
        """Replace the registration. `registered` is cleared until the registries have the new one.

        It does not wait for registries that did not answer the last call.
        """
        self._stamp(host)
        for registration in self._registrations:
            registration.update(host)

    def _stamp(self, host: registry_service_pb2.Host) -> None:
        """Note when this description was made. Its clock may go back, and the next one is later."""
        self._described_ns = max(time.time_ns(), self._described_ns + 1)
        host.describe_time.FromNanoseconds(self._described_ns)

    def _has_first_answer(self) -> bool:
        """Return whether a registry has the host, or none is available."""
        for registration in self._registrations:
            problem = registration.problem
            if problem is not None and not isinstance(problem, PeerError):
                raise problem
        return any(each.is_current for each in self._registrations) or all(
            each.problem is not None for each in self._registrations
        )

    def _is_registered(self) -> bool:
        return any(each.is_current for each in self._registrations) and all(
            each.is_current or isinstance(each.problem, PeerError) for each in self._registrations
        )

    def _note_change(self) -> None:
        if any(each.is_current for each in self._registrations):
            self.joined.set()
        if self._is_registered():
            self.registered.set()
        else:
            self.registered.clear()
        self._has_changed.set()


class _Registration:
    """The registration at one registry: renews its lease, and repeats it if needed."""

    def __init__(
        self,
        client: RegistryClient,
        host: registry_service_pb2.Host,
        read_load: Callable[[], registry_service_pb2.HostLoad | None],
        on_change: Callable[[], None],
    ) -> None:
        self._client = client
        self._host = host
        self._read_load = read_load
        self._on_change = on_change
        self._lease_s = 0.0
        self._is_outdated = asyncio.Event()
        self.is_current: bool = False
        """The registry has the latest registration, as far as this process knows."""
        self.problem: TrunklineError | None = None
        """The error of the last call."""

    def update(self, host: registry_service_pb2.Host) -> None:
        """Register another description of the host."""
        self._host = host
        self.is_current = False
        self._is_outdated.set()
        self._on_change()

    async def run(self) -> None:
        """Register the host and renew its lease, until canceled."""
        try:
            await self._register()
        except TrunklineError as error:
            # The caller that enters the membership gets a refusal.
            self._note_problem(error)
            extra = {"peer": self._client.peer, "reason": error.reason, "problem": str(error)}
            logger.info("registry.away", extra=extra)
        while True:
            if not self.is_current:
                await self._retry(self._register)
            async with run_in_background(self._retry(self._hold)):
                await self._is_outdated.wait()

    async def deregister(self) -> None:
        """Remove the host from the registry, if it answers in time."""
        # Also if it is not current, because a response of the registry may have been lost.
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._client.deregister(self._host.host_id)
        except (TimeoutError, TrunklineError):
            extra = {"host_id": self._host.host_id, "peer": self._client.peer}
            logger.info("registry.not_told", extra=extra)

    async def _retry(self, call: Callable[[], Awaitable[None]]) -> None:
        # A pause longer than the lease would lose it.
        backoff = Backoff(limit_s=min(_RETRY_LIMIT_S, self._lease_s / 3 or _RETRY_LIMIT_S))
        logged = ""
        while True:
            started_s = time.monotonic()
            try:
                await call()
            except TrunklineError as error:
                self._note_problem(error)
                if 0 < self._lease_s < time.monotonic() - started_s:
                    # The call worked for a while before it failed. Without a lease, it never did.
                    backoff.reset()
                    logged = ""
                # Every refusal is retried, because a journal of another owner may be released.
                if error.reason != logged:
                    extra = {
                        "peer": self._client.peer,
                        "reason": error.reason,
                        "problem": str(error),
                    }
                    logger.warning("registry.refused", extra=extra)
                logged = error.reason
                await backoff.pause()
            else:
                return

    async def _hold(self) -> None:
        try:
            # The stream has no deadline, and may wait long for a connection. This call finds out in
            # time whether the registry answers. Pings end the stream if the registry stops later.
            await self._client.keep_alive(self._host.host_id, self._read_load())
            self._note_problem(None)
            await self._client.hold_lease(
                self._host.host_id, every_s=self._lease_s / 3, read_load=self._read_load
            )
        except HostNotFoundError:
            self.update(self._host)

    async def _register(self) -> None:
        self._is_outdated.clear()
        self._lease_s = await self._client.register(self._host)
        self.is_current = not self._is_outdated.is_set()
        self._note_problem(None)

    def _note_problem(self, problem: TrunklineError | None) -> None:
        self.problem = problem
        self._on_change()
