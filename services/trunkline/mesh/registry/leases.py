"""The table of hosts and their leases. It makes no calls and starts no tasks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trunkline.core.settings import HostPort
from trunkline.errors import HostNotFoundError, InvalidArgumentError
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading
from trunkline.v1 import registry_service_pb2

_LOST_LIMIT: Final = 100
_LOST_AGE: Final = timedelta(days=7)


@dataclass(slots=True)
class _Lease:
    host: registry_service_pb2.Host
    expires_at_s: float


class LeaseTable:
    """The hosts that have a lease, by a monotonic clock.

    `revision` increases at each change of the hosts. A renewal changes only the load of a host,
    and `load_revision` increases with it.
    """

    def __init__(
        self,
        *,
        lease_s: float,
        clock: Callable[[], float],
        lost: Iterable[registry_service_pb2.Host] = (),
    ) -> None:
        """`lost` are the lost hosts at the start; `lease_expire_time` tells since when."""
        self.lease_s = lease_s
        self.revision: int = 1
        self.load_revision: int = 1
        self._clock = clock
        self._leases: dict[str, _Lease] = {}
        # No lease ends before. Each call of a host asks, so to look at all leases would be slow.
        self._next_expiry_s = 0.0
        # The live hosts by their addresses, and by the journals that they serve.
        self._by_address: dict[str, str] = {}
        self._by_journal: dict[str, str] = {}
        # By id, the latest at the end.
        self._lost = {host.host_id: host for host in lost}
        instruments.HOSTS.watch(self, LeaseTable._count_hosts)

    def register(self, host: registry_service_pb2.Host) -> None:
        """Register a host, or replace its registration.

        The newest registration wins: it removes the hosts with the same id or address. It also
        removes the host whose id is one of the new host's journals, because that host was taken
        over, and removes these journals from all other hosts. A removed host is lost until its
        other journals are registered: a process that was killed and starts again may have a new
        journal.

        Raises:
            InvalidArgumentError: as `check`.
        """
        for host_id in self._check(host):
            replaced = self._drop(host_id)
            if host_id != host.host_id:
                self._note_lost(replaced)
        journals = set(host.journal_ids)
        for journal_id in journals:
            if (previous := self._by_journal.get(journal_id)) is not None:
                self._leases[previous].host.journal_ids.remove(journal_id)
            self._by_journal[journal_id] = host.host_id
        copy = registry_service_pb2.Host()
        copy.CopyFrom(host)
        # A process may name a journal twice.
        copy.journal_ids[:] = dict.fromkeys(host.journal_ids)
        expires_at_s = self._clock() + self.lease_s
        self._leases[host.host_id] = _Lease(copy, expires_at_s)
        self._next_expiry_s = min(self._next_expiry_s, expires_at_s)
        self._by_address[host.address] = host.host_id
        self.forget_lost(journals)
        self.revision += 1

    def check(self, host: registry_service_pb2.Host) -> None:
        """Check that a host can be registered.

        Raises:
            InvalidArgumentError: the id is missing, or the address is neither HOST:PORT nor a Unix
                socket.
        """
        self._check(host)

    def _check(self, host: registry_service_pb2.Host) -> Collection[str]:
        """Check a host as `check`; return the ids of the live hosts that it replaces."""
        if not host.host_id:
            raise InvalidArgumentError("host", "needs a host_id")
        _check_address(host.address)
        self.expire()
        replaced = {host.host_id, *host.journal_ids, self._by_address.get(host.address, "")}
        return replaced & self._leases.keys()

    def find(self, host_id: str) -> registry_service_pb2.Host | None:
        """Return the live host with an id."""
        self.expire()
        lease = self._leases.get(host_id)
        return None if lease is None else lease.host

    def renew(self, host_id: str, load: registry_service_pb2.HostLoad | None = None) -> None:
        """Renew a host's lease, and replace its load if it reports one.

        Raises:
            HostNotFoundError: the host has no lease, for example because it has ended.
        """
        self.expire()
        lease = self._leases.get(host_id)
        if lease is None:
            raise HostNotFoundError(host_id)
        lease.expires_at_s = self._clock() + self.lease_s
        if load is not None and load != lease.host.load:
            lease.host.load.CopyFrom(load)
            self.load_revision += 1

    def agent_names(self, host_id: str) -> list[str]:
        """Return the agents of a host; none if it is not registered."""
        lease = self._leases.get(host_id)
        return [] if lease is None else [agent.card.name for agent in lease.host.agents]

    def remove(self, host_id: str) -> None:
        """Remove a host, if it is registered."""
        if host_id in self._leases:
            self._drop(host_id)
            self.revision += 1

    def _drop(self, host_id: str) -> registry_service_pb2.Host:
        host = self._leases.pop(host_id).host
        del self._by_address[host.address]
        for journal_id in host.journal_ids:
            del self._by_journal[journal_id]
        return host

    def _note_lost(self, host: registry_service_pb2.Host) -> None:
        if host.journal_ids:
            host.lease_expire_time.GetCurrentTime()
            self._lost.pop(host.host_id, None)
            self._lost[host.host_id] = host

    def extend(self, by_s: float) -> None:
        """Extend all leases by a time in which no host could renew its lease."""
        for lease in self._leases.values():
            lease.expires_at_s += by_s

    def expire(self) -> None:
        """Remove the hosts whose leases have ended."""
        now = self._clock()
        if now < self._next_expiry_s:
            return
        expired = [host_id for host_id, lease in self._leases.items() if lease.expires_at_s <= now]
        for host_id in expired:
            self._note_lost(self._drop(host_id))
            self.revision += 1
        oldest = datetime.now(UTC) - _LOST_AGE
        for host_id, host in list(self._lost.items()):
            is_old = host.lease_expire_time.ToDatetime(UTC) < oldest
            if is_old or len(self._lost) > _LOST_LIMIT:
                del self._lost[host_id]
        # Leases are only extended, so this holds until one that is made later may end.
        self._next_expiry_s = min(
            (lease.expires_at_s for lease in self._leases.values()), default=now + self.lease_s
        )

    def next_expiry_s(self) -> float | None:
        """Return the seconds until a lease may end, unless it is renewed; None without leases."""
        if not self._leases:
            return None
        return max(0.0, self._next_expiry_s - self._clock())

    def list_live(self) -> list[tuple[registry_service_pb2.Host, float]]:
        """Return the live hosts with the seconds until their leases end, in registration order."""
        self.expire()
        now = self._clock()
        return [(lease.host, lease.expires_at_s - now) for lease in self._leases.values()]

    def iter_live(self) -> Iterator[registry_service_pb2.Host]:
        """Yield the live hosts."""
        self.expire()
        for lease in self._leases.values():
            yield lease.host

    def list_lost(self) -> Sequence[registry_service_pb2.Host]:
        """Return the latest hosts whose leases ended, with the journals that no live host has.

        `lease_expire_time` is when the lease ended. Hosts are listed for 7 days.
        """
        self.expire()
        return list(self._lost.values())

    def forget_lost(self, journals: Collection[str]) -> None:
        """Forget that journals have no host, and the lost hosts that had no others."""
        for host in self._lost.values():
            host.journal_ids[:] = [each for each in host.journal_ids if each not in journals]
        self._lost = {host_id: host for host_id, host in self._lost.items() if host.journal_ids}

    def _count_hosts(self) -> Sequence[Reading]:
        return [((), len(self._leases))]


def _check_address(address: str) -> None:
    """Check an address that others dial: another gRPC target could be a name service."""
    if address.startswith("unix:"):
        return
    try:
        HostPort.parse(address)
    except ValueError as error:
        raise InvalidArgumentError("host.address", str(error)) from error
