"""The living hosts and how long each may be believed to live. Pure state: no calls, no tasks."""

from collections.abc import Callable
from dataclasses import dataclass

from trunkline.errors import AgentNameTakenError, HostNotFoundError, InvalidArgumentError
from trunkline.v1 import registry_service_pb2


@dataclass(slots=True)
class _Lease:
    host: registry_service_pb2.Host
    ends: float


class LeaseTable:
    """Hosts under leases, measured by a clock that never jumps.

    `revision` counts the changes that a reader could see; a renewal is none.
    """

    def __init__(self, *, lease_s: float, clock: Callable[[], float]) -> None:
        self.lease_s = lease_s
        self.revision = 1
        self._clock = clock
        self._leases: dict[str, _Lease] = {}

    def register(self, host: registry_service_pb2.Host) -> None:
        """Put a host on the mesh, instead of what it said before.

        The newest is right: whoever had its id, its address or the journal it is named after is
        gone, and a journal that was taken over is nobody else's any more.

        Raises:
            InvalidArgumentError: it has no id or no address.
            AgentNameTakenError: another living host has one of its agents.
        """
        if not host.host_id or not host.address:
            raise InvalidArgumentError("host", "needs a host_id and an address")
        self.expire()
        journals = set(host.journal_ids)
        replaced = [
            known
            for known, lease in self._leases.items()
            if known == host.host_id or known in journals or lease.host.address == host.address
        ]
        self._check_names(host, replaced)
        for known in replaced:
            del self._leases[known]
        for lease in self._leases.values():
            left = [one for one in lease.host.journal_ids if one not in journals]
            lease.host.journal_ids[:] = left
        kept = registry_service_pb2.Host()
        kept.CopyFrom(host)
        self._leases[host.host_id] = _Lease(kept, self._clock() + self.lease_s)
        self.revision += 1

    def renew(self, host_id: str) -> None:
        """Begin a host's lease anew.

        Raises:
            HostNotFoundError: it has run out, or there never was one.
        """
        self.expire()
        lease = self._leases.get(host_id)
        if lease is None:
            raise HostNotFoundError(host_id)
        lease.ends = self._clock() + self.lease_s

    def remove(self, host_id: str) -> None:
        """Take a host off the mesh, if it is there."""
        if self._leases.pop(host_id, None) is not None:
            self.revision += 1

    def extend(self, by_s: float) -> None:
        """Make all leases longer: for so long nobody could renew one."""
        for lease in self._leases.values():
            lease.ends += by_s

    def expire(self) -> None:
        """Take off the mesh whose lease has run out."""
        now = self._clock()
        over = [host_id for host_id, lease in self._leases.items() if lease.ends <= now]
        for host_id in over:
            self.remove(host_id)

    def next_expiry_s(self) -> float | None:
        """Return in how many seconds the next lease runs out; None without any."""
        if not self._leases:
            return None
        return max(0.0, min(lease.ends for lease in self._leases.values()) - self._clock())

    def list_live(self) -> list[tuple[registry_service_pb2.Host, float]]:
        """Return the living hosts, longest there first, and the seconds their leases still hold."""
        self.expire()
        now = self._clock()
        return [(lease.host, lease.ends - now) for lease in self._leases.values()]

    def _check_names(self, host: registry_service_pb2.Host, replaced: list[str]) -> None:
        wanted = {agent.card.name for agent in host.agents}
        for known, lease in self._leases.items():
            if known in replaced:
                continue
            for agent in lease.host.agents:
                if agent.card.name in wanted:
                    raise AgentNameTakenError(agent.card.name, lease.host.address)
