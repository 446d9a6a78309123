"""The servicer of trunkline.v1.RegistryService.

A mesh may have several registries, which do not know each other: each host registers at all of
them. After a restart of a registry, all hosts register again. Its folder keeps which hosts were
known, so that hosts which do not come back are missed. Who owns which journal is in small files
that all registries share.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import grpc
from google.protobuf import duration_pb2

from trunkline.core.backoff import retry_while_unavailable
from trunkline.core.identity import Identity, Role
from trunkline.core.runtime import finish
from trunkline.core.settings import DEFAULTS
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.mesh.client import run_in_background
from trunkline.mesh.registry.known_hosts import KnownHostsFile
from trunkline.mesh.registry.leases import LeaseTable
from trunkline.mesh.registry.owners import OwnerTable
from trunkline.mesh.server.authorization import caller
from trunkline.observe.audit import Action, Actor, AuditLog, process_actor, recording
from trunkline.v1 import registry_service_pb2, registry_service_pb2_grpc

logger = logging.getLogger(__name__)

# The watchers get changed loads this long after the first change, and so not more often.
_LOADS_PAUSE_S: Final = 0.5

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class RegistryServicer(registry_service_pb2_grpc.RegistryServiceServicer):
    """The registry. An async context manager: while it is open, leases expire and watches run."""

    def __init__(
        self,
        lease_s: float = DEFAULTS.lease_s,
        audit: AuditLog | None = None,
        *,
        folder: Path | None = None,
        files: SmallFiles | None = None,
        list_revoked: Callable[[], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        """Without an audit log, nothing is recorded.

        `folder` keeps the known hosts while no registry runs, and `files` the owners of journals.

        `list_revoked` returns the revoked instances of identities, if any can be. Their hosts are
        removed. It is called when the registry opens, which raises its errors, and then four times
        a lease.
        """
        self._audit = audit
        self._owners = OwnerTable(files)
        self._known_hosts = KnownHostsFile(None if folder is None else folder / "hosts.json")
        self._leases = LeaseTable(
            lease_s=lease_s, clock=time.monotonic, lost=self._known_hosts.load()
        )
        # Until then, the list is partial: hosts may not have registered again after a restart.
        self._complete_at = time.monotonic() + lease_s
        self._is_partial = True
        # Recorded journals that no host has registered since this start.
        self._missing_journals: frozenset[str] = frozenset()
        self._checked_at = time.monotonic()
        self._list_revoked = list_revoked
        self._revoked: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        # The latest list, and the latest loads, with what they were made of.
        self._shared: dict[
            bool, tuple[tuple[int, int, asyncio.Event], registry_service_pb2.WatchAgentsResponse]
        ] = {}
        # The revision when the watchers were last woken.
        self._announced = self._leases.revision
        # Runs while changed loads wait for their announcement.
        self._load_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await retry_while_unavailable(self._owners.load, limit_s=math.inf)
        self._missing_journals = self._owners.list_journals()
        if self._list_revoked is not None:
            # Before the first call, so that no revoked process is let in.
            self._revoked = await retry_while_unavailable(self._list_revoked, limit_s=math.inf)
            watch = self._watch_revoked(self._list_revoked)
            await self._open.enter_async_context(run_in_background(watch))
        await self._open.enter_async_context(run_in_background(self._sweep()))
        self._open.push_async_callback(self._save_hosts)
        await self._open.enter_async_context(run_in_background(self._save_changes()))
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
        self, request: registry_service_pb2.RegisterRequest, context: _Context
    ) -> registry_service_pb2.RegisterResponse:
        self._extend_if_frozen()
        host, identity = request.host, caller.get()
        # Before the records, of which there is one for each agent.
        self._check_size(host, identity)
        agents = [agent.card.name for agent in host.agents]
        with self._recording(Action.AGENT_REGISTER, context, host.host_id, agents):
            if identity.role is not Role.MEMBER:
                # Another registry may have released a journal, or have given it another owner.
                with suppress(JournalUnavailableError):
                    await self._owners.load()
            self._check(host, identity)
            await self._owners.record(host.journal_ids, identity)
            # Other hosts may have registered during the write. The journals of a host that is
            # refused here have an owner, so that the same process can register them later.
            self._check_size(host, identity)
            self._check(host, identity)
            host.identity = str(identity)
            host.is_presumed_lost = False
            self._leases.register(host)
        self._missing_journals -= set(host.journal_ids)
        self._notify()
        fields = {"host_id": host.host_id, "address": host.address}
        logger.info("host.registered", extra=fields)
        return registry_service_pb2.RegisterResponse(lease=self._lease())

    async def KeepAlive(
        self, request: registry_service_pb2.KeepAliveRequest, _context: _Context
    ) -> registry_service_pb2.KeepAliveResponse:
        self._renew(request)
        return registry_service_pb2.KeepAliveResponse(lease=self._lease())

    async def HoldLease(
        self,
        requests: AsyncIterator[registry_service_pb2.HoldLeaseRequest],
        _context: _Context,
    ) -> registry_service_pb2.HoldLeaseResponse:
        async for request in requests:
            self._renew(request)
        return registry_service_pb2.HoldLeaseResponse()

    async def Deregister(
        self, request: registry_service_pb2.DeregisterRequest, context: _Context
    ) -> registry_service_pb2.DeregisterResponse:
        agents = self._leases.agent_names(request.host_id)
        with self._recording(Action.AGENT_DEREGISTER, context, request.host_id, agents):
            self._check_owner(request.host_id)
            self._leases.remove(request.host_id)
        self._notify()
        return registry_service_pb2.DeregisterResponse()

    async def ListAgents(
        self, _request: registry_service_pb2.ListAgentsRequest, _context: _Context
    ) -> registry_service_pb2.ListAgentsResponse:
        return registry_service_pb2.ListAgentsResponse(
            hosts=self._hosts(), lost_hosts=self._leases.list_lost()
        )

    async def WatchAgents(
        self, request: registry_service_pb2.WatchAgentsRequest, _context: _Context
    ) -> AsyncIterator[registry_service_pb2.WatchAgentsResponse]:
        sent, sent_loads = 0, 0
        while not self._is_closing:
            changed = self._changed
            self._extend_if_frozen()
            self._leases.expire()
            if self._leases.revision != sent:
                sent, sent_loads = self._leases.revision, self._leases.load_revision
                # All changes during this write are sent in the next response.
                yield self._share(sent, 0, self._build_list)
            elif request.with_loads and self._leases.load_revision != sent_loads:
                sent_loads = self._leases.load_revision
                yield self._share(sent, sent_loads, self._build_loads)
            else:
                await changed.wait()

    async def ReleaseJournals(
        self, request: registry_service_pb2.ReleaseJournalsRequest, context: _Context
    ) -> registry_service_pb2.ReleaseJournalsResponse:
        # All of it is done even if the caller gives up during the write of the owners: a repeated
        # call would not find the journals of an owner any more.
        work = self._release(frozenset(request.names), process_actor(context.peer()))
        released = await finish(asyncio.get_running_loop().create_task(work))
        return registry_service_pb2.ReleaseJournalsResponse(journal_ids=released)

    async def _release(self, names: frozenset[str], actor: Actor) -> Collection[str]:
        """Release journals by their ids and owners, and tell the watchers; return the ids."""
        released = await self._owners.release(names)
        # A journal of a lost host may have no owner.
        self._leases.forget_lost(names | released.keys())
        self._leases.revision += 1
        self._notify()
        for journal_id, owner in released.items():
            logger.info("journal.released", extra={"journal": journal_id, "owner": owner})
            if self._audit is not None:
                self._audit.record(Action.JOURNAL_RELEASE, actor, journal=journal_id, owner=owner)
        return released

    @contextmanager
    def _recording(
        self, action: Action, context: _Context, host_id: str, agents: Sequence[str]
    ) -> Iterator[None]:
        """Record an act on the agents of a host, with one record for each agent."""
        with ExitStack() as stack:
            for agent in agents:
                stack.enter_context(
                    recording(
                        self._audit,
                        action,
                        lambda: process_actor(context.peer()),
                        agent=agent,
                        host=host_id,
                    )
                )
            yield

    def _check_size(self, host: registry_service_pb2.Host, identity: Identity) -> None:
        self._owners.check_size(host, identity, self._leases.iter_live())

    def _check(self, host: registry_service_pb2.Host, identity: Identity) -> None:
        self._owners.check(host, identity, self._leases.iter_live())
        self._leases.check(host)

    def _renew(
        self,
        request: registry_service_pb2.KeepAliveRequest | registry_service_pb2.HoldLeaseRequest,
    ) -> None:
        self._extend_if_frozen()
        self._check_owner(request.host_id)
        before = self._leases.load_revision
        self._leases.renew(request.host_id, request.load if request.HasField("load") else None)
        if self._leases.load_revision != before and self._load_timer is None:
            # All hosts report at the same ticks, so most of their loads are sent together.
            loop = asyncio.get_running_loop()
            self._load_timer = loop.call_later(_LOADS_PAUSE_S, self._announce_loads)

    def _announce_loads(self) -> None:
        """Wake the watchers for changed loads."""
        self._load_timer = None
        self._wake()

    def _check_owner(self, host_id: str) -> None:
        """Check that the caller may speak for a host. Everybody may speak for an unknown host."""
        host = self._leases.find(host_id)
        if host is not None:
            self._owners.check_owner(host, caller.get())

    def _share(
        self,
        revision: int,
        load_revision: int,
        build: Callable[[], registry_service_pb2.WatchAgentsResponse],
    ) -> registry_service_pb2.WatchAgentsResponse:
        """Return a response for the watchers, the same one for all that a change wakes."""
        found = self._shared.get(bool(load_revision))
        key = (revision, load_revision, self._changed)
        if found is None or found[0] != key:
            found = self._shared[bool(load_revision)] = key, build()
        return found[1]

    def _build_list(self) -> registry_service_pb2.WatchAgentsResponse:
        return registry_service_pb2.WatchAgentsResponse(
            revision=self._leases.revision,
            hosts=self._hosts(),
            is_partial=self._is_partial,
            has_missing_journals=self._is_partial and bool(self._missing_journals),
            revoked_instances=sorted(self._revoked),
            lost_hosts=self._leases.list_lost(),
        )

    def _build_loads(self) -> registry_service_pb2.WatchAgentsResponse:
        loads = {host.host_id: host.load for host in self._leases.iter_live()}
        return registry_service_pb2.WatchAgentsResponse(revision=self._leases.revision, loads=loads)

    def _hosts(self) -> list[registry_service_pb2.Host]:
        self._extend_if_frozen()
        now = datetime.now(UTC)
        hosts = []
        for host, left_s in self._leases.list_live():
            snapshot = registry_service_pb2.Host()
            snapshot.CopyFrom(host)
            snapshot.lease_expire_time.FromDatetime(now + timedelta(seconds=left_s))
            hosts.append(snapshot)
        return hosts

    def _lease(self) -> duration_pb2.Duration:
        lease = duration_pb2.Duration()
        lease.FromTimedelta(timedelta(seconds=self._leases.lease_s))
        return lease

    def _list_live(self) -> list[registry_service_pb2.Host]:
        return [host for host, _ in self._leases.list_live()]

    async def _save_hosts(self) -> None:
        await self._known_hosts.save(self._list_live(), self._leases.list_lost())

    async def _save_changes(self) -> None:
        """Save the known hosts after changes. No call waits for this file."""
        while True:
            changed, started_s = self._changed, time.monotonic()
            await self._save_hosts()
            # So it takes a tenth of the time at most, however many hosts there are.
            await asyncio.sleep(9 * (time.monotonic() - started_s))
            await changed.wait()

    def _notify(self) -> None:
        """Wake the watchers, the sweeper, and the writer of the known hosts."""
        self._announced = self._leases.revision
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _close(self) -> None:
        self._is_closing = True
        if self._load_timer is not None:
            self._load_timer.cancel()
        self._notify()

    def _extend_if_frozen(self) -> None:
        """Extend all leases by the time that this process was frozen and received no renewals."""
        now = time.monotonic()
        frozen_s = now - self._checked_at
        self._checked_at = now
        if frozen_s > self._leases.lease_s / 2:
            logger.warning("registry.was_frozen", extra={"seconds": round(frozen_s, 1)})
            self._leases.extend(frozen_s)

    async def _sweep(self) -> None:
        while True:
            changed = self._changed
            # Leases are only extended, so this timeout is never too late.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._next_check_s()):
                    await changed.wait()
            self._extend_if_frozen()
            self._leases.expire()
            # A lease may have ended during a call, such as the renewal of another.
            if self._leases.revision != self._announced:
                logger.warning("host.lost", extra={"left": len(self._leases.list_live())})
                self._notify()
            if self._is_partial and time.monotonic() >= self._complete_at:
                self._is_partial = False
                self._leases.revision += 1
                self._notify()

    async def _watch_revoked(self, list_revoked: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Remove the hosts of identities that are revoked, and tell the watchers."""
        while True:
            await asyncio.sleep(self._leases.lease_s / 4)
            try:
                revoked = await list_revoked()
            except (ConfigurationError, JournalUnavailableError) as error:
                logger.error("registry.revocations_not_read", extra={"problem": str(error)})
                continue
            if revoked == self._revoked:
                continue
            self._revoked = revoked
            for host, _ in self._leases.list_live():
                if Identity.parse(host.identity).instance in revoked:
                    self._leases.remove(host.host_id)
            self._leases.revision += 1
            self._notify()

    def _next_check_s(self) -> float:
        until_expiry_s = self._leases.next_expiry_s()
        interval_s = self._leases.lease_s / 4
        return interval_s if until_expiry_s is None else min(until_expiry_s, interval_s)
