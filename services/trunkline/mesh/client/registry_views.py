"""What the registries of the mesh say about its hosts, and their union."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from trunkline.errors import TrunklineError
from trunkline.mesh.client.services import RegistryClient
from trunkline.v1 import registry_service_pb2


@dataclass(slots=True, eq=False)
class RegistryView:
    """What one registry said last."""

    client: RegistryClient
    is_answering: bool = False
    problem: TrunklineError | None = None
    """Why it does not answer, if it was asked."""
    hosts: Sequence[registry_service_pb2.Host] = ()
    lost_hosts: Sequence[registry_service_pb2.Host] = ()
    is_partial: bool = True
    """Hosts that are known from before may not have registered again since its start."""
    has_missing_journals: bool = False
    revoked_instances: Collection[str] = field(default_factory=frozenset)

    def replace(self, update: registry_service_pb2.WatchAgentsResponse) -> None:
        """Replace everything by an update of the registry."""
        self.is_answering, self.problem = True, None
        self.hosts, self.lost_hosts = tuple(update.hosts), tuple(update.lost_hosts)
        self.is_partial = update.is_partial
        self.has_missing_journals = update.has_missing_journals
        self.revoked_instances = frozenset(update.revoked_instances)


def merge_hosts(
    lists: Sequence[Sequence[registry_service_pb2.Host]],
) -> tuple[registry_service_pb2.Host, ...]:
    """Return the hosts that are in one of the registries' lists.

    Where the lists differ, the latest description counts, as the newest registration does in a
    registry: it replaces hosts with its id or its address and the hosts that it took over, and has
    its journals alone.
    """
    if len(lists) == 1:
        return tuple(lists[0])
    hosts: dict[str, registry_service_pb2.Host] = {}
    ids_by_address: dict[str, str] = {}
    ids_by_journal: dict[str, str] = {}
    described = (host for hosts in lists for host in hosts)
    for host in sorted(described, key=_describe_order):
        replaced = {host.host_id, ids_by_address.get(host.address, ""), *host.journal_ids}
        for host_id in replaced & hosts.keys():
            del hosts[host_id]
        hosts[host.host_id] = host
        ids_by_address[host.address] = host.host_id
        ids_by_journal.update(dict.fromkeys(host.journal_ids, host.host_id))
    return tuple(
        _keep_journals(
            host, [each for each in host.journal_ids if ids_by_journal[each] == host.host_id]
        )
        for host in hosts.values()
    )


def merge_lost_hosts(
    lists: Sequence[Sequence[registry_service_pb2.Host]],
    live: Iterable[registry_service_pb2.Host],
) -> tuple[registry_service_pb2.Host, ...]:
    """Return the lost hosts of the registries' lists, the latest last.

    They have those of their journals that no live host has. A host that is alive is left out, and
    so is a host that registries presume to be lost, unless each of them does.
    """
    ids: set[str] = set()
    journals: set[str] = set()
    for host in live:
        ids.add(host.host_id)
        journals.update(host.journal_ids)
    every = [host for hosts in lists for host in hosts]
    counts = Counter(host.host_id for host in every)
    known = {host.host_id for host in every if not host.is_presumed_lost}
    lost: dict[str, registry_service_pb2.Host] = {}
    for host in sorted(every, key=lambda host: host.lease_expire_time.ToNanoseconds()):
        if host.is_presumed_lost and (host.host_id in known or counts[host.host_id] < len(lists)):
            continue
        lost.pop(host.host_id, None)
        left = [each for each in host.journal_ids if each not in journals]
        if host.host_id not in ids and left:
            lost[host.host_id] = _keep_journals(host, left)
    return tuple(lost.values())


def find_missing_hosts(
    former: Sequence[registry_service_pb2.Host], hosts: Sequence[registry_service_pb2.Host]
) -> tuple[registry_service_pb2.Host, ...]:
    """Return the former hosts that have not registered again, and that no other has replaced."""
    ids = {host.host_id for host in hosts}
    addresses = {host.address for host in hosts}
    journals = {journal_id for host in hosts for journal_id in host.journal_ids}
    return tuple(
        host
        for host in former
        if host.host_id not in ids
        and host.address not in addresses
        and journals.isdisjoint(host.journal_ids)
    )


def _describe_order(host: registry_service_pb2.Host) -> tuple[int, int, str, Sequence[str]]:
    """Return the key by which descriptions are sorted, the latest last.

    Hosts of earlier builds have no time. Of them, the host whose lease ends last counts.
    """
    return (
        host.describe_time.ToNanoseconds(),
        host.lease_expire_time.ToNanoseconds(),
        host.host_id,
        tuple(host.journal_ids),
    )


def _keep_journals(
    host: registry_service_pb2.Host, journal_ids: Sequence[str]
) -> registry_service_pb2.Host:
    """Return a host with these of its journals; the host itself is not changed."""
    if len(journal_ids) == len(host.journal_ids):
        return host
    kept = registry_service_pb2.Host()
    kept.CopyFrom(host)
    kept.journal_ids[:] = journal_ids
    return kept
