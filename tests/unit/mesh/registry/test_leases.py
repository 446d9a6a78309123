"""Tests of leases with a manual clock: they begin, are renewed and expire."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.journal.manual_clock import ManualClock
from trunkline.core.identity import Identity
from trunkline.errors import HostNotFoundError, InvalidArgumentError
from trunkline.mesh.registry.leases import LeaseTable
from trunkline.mesh.registry.owners import OwnerTable
from trunkline.v1 import registry_service_pb2


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leases(clock: ManualClock) -> LeaseTable:
    return LeaseTable(lease_s=10.0, clock=clock)


def host(name: str, *agents: str, address: str = "") -> registry_service_pb2.Host:
    new_host = registry_service_pb2.Host(host_id=name, address=address or f"{name}:1")
    for agent in agents:
        new_host.agents.add().card.name = agent
    return new_host


def live_journals(leases: LeaseTable) -> dict[str, list[str]]:
    return {live_host.host_id: list(live_host.journal_ids) for live_host, _ in leases.list_live()}


def live_hosts(leases: LeaseTable) -> list[str]:
    return [live_host.host_id for live_host, _ in leases.list_live()]


def test_a_lease_expires_exactly_at_its_end(leases: LeaseTable, clock: ManualClock) -> None:
    leases.register(host("h-1"))
    clock.now += 9.99
    assert live_hosts(leases) == ["h-1"]
    clock.now += 0.01
    assert live_hosts(leases) == []


def test_a_journal_that_a_host_names_twice_counts_once(
    leases: LeaseTable, clock: ManualClock
) -> None:
    twice = host("h-1")
    twice.journal_ids.extend(["j-1", "j-1"])
    leases.register(twice)
    leases.register(twice)
    taker = host("h-2")
    taker.journal_ids.append("j-1")
    leases.register(taker)
    assert live_journals(leases) == {"h-1": [], "h-2": ["j-1"]}
    clock.now += 10
    assert live_hosts(leases) == []


def test_a_host_that_another_one_replaces_is_lost_until_its_journals_have_hosts(
    leases: LeaseTable,
) -> None:
    """A process that was killed starts again at its address, with a new journal."""

    def register(name: str, *journals: str, address: str = "") -> dict[str, list[str]]:
        registered = host(name, address=address)
        registered.journal_ids.extend(journals)
        leases.register(registered)
        return {lost.host_id: list(lost.journal_ids) for lost in leases.list_lost()}

    assert register("a", "a", "x", address="here:1") == {}
    # A host that hands a journal over is not lost.
    assert register("a", "a", address="here:1") == {}
    assert register("a", "a", "x", address="here:1") == {}
    assert register("b", "b", address="here:1") == {"a": ["a", "x"]}
    assert leases.list_lost()[0].HasField("lease_expire_time")
    assert register("c", "c", "a") == {"a": ["x"]}
    assert register("c", "c", "a", "x") == {}


def test_renewing_a_lease_extends_it_without_a_new_revision(
    leases: LeaseTable, clock: ManualClock
) -> None:
    leases.register(host("h-1"))
    revision = leases.revision
    clock.now += 9
    leases.renew("h-1")
    clock.now += 9
    assert live_hosts(leases) == ["h-1"]
    assert leases.revision == revision


def test_an_expired_lease_cannot_be_renewed(leases: LeaseTable, clock: ManualClock) -> None:
    leases.register(host("h-1"))
    clock.now += 10
    with pytest.raises(HostNotFoundError):
        leases.renew("h-1")


def test_the_next_expiry_is_that_of_the_oldest_lease(
    leases: LeaseTable, clock: ManualClock
) -> None:
    assert leases.next_expiry_s() is None
    leases.register(host("h-1"))
    clock.now += 4
    leases.register(host("h-2"))
    assert leases.next_expiry_s() == 6
    leases.renew("h-1")
    clock.now += 6
    leases.expire()
    assert leases.next_expiry_s() == 4
    clock.now += 20
    assert leases.next_expiry_s() == 0


def test_a_renewal_replaces_the_load_and_a_registration_does_so_too(leases: LeaseTable) -> None:
    leases.register(host("h-1", "math"))
    revisions = leases.revision, leases.load_revision
    for open_turns in (3, 3):
        leases.renew("h-1", registry_service_pb2.HostLoad(open_turns=open_turns))
    leases.renew("h-1")
    ((live_host, _),) = leases.list_live()
    assert live_host.load.open_turns == 3
    assert (leases.revision, leases.load_revision) == (revisions[0], revisions[1] + 1)


def test_the_registered_host_is_a_copy(leases: LeaseTable) -> None:
    original = host("h-1", "math")
    leases.register(original)
    original.agents[0].card.name = "changed"
    ((live_host, remaining_s),) = leases.list_live()
    assert live_host.agents[0].card.name == "math"
    assert remaining_s == 10


@pytest.mark.parametrize("incomplete", [host(""), registry_service_pb2.Host(host_id="h-1")])
def test_a_host_needs_an_id_and_an_address(
    leases: LeaseTable, incomplete: registry_service_pb2.Host
) -> None:
    incomplete.address = "" if incomplete.host_id else "h:1"
    with pytest.raises(InvalidArgumentError):
        leases.register(incomplete)


def serving_host(
    name: str, *journal_ids: str, agent: str = "", address: str = ""
) -> registry_service_pb2.Host:
    new_host = host(name, *([agent] if agent else []), address=address)
    new_host.journal_ids.extend(journal_ids)
    return new_host


def test_a_restarted_host_replaces_its_old_entry_at_once_also_at_another_port(
    leases: LeaseTable,
) -> None:
    leases.register(serving_host("j-1", "j-1", agent="math", address="h:1"))
    leases.register(serving_host("j-1", "j-1", agent="math", address="h:2"))
    assert [(live_host.host_id, live_host.address) for live_host, _ in leases.list_live()] == [
        ("j-1", "h:2")
    ]


def test_taking_over_a_hosts_own_journal_removes_that_host(
    leases: LeaseTable,
) -> None:
    leases.register(serving_host("j-1", "j-1", agent="math"))
    leases.register(serving_host("j-2", "j-2", agent="echo"))
    leases.register(serving_host("j-2", "j-2", "j-1", agent="echo"))
    assert live_journals(leases) == {"j-2": ["j-2", "j-1"]}
    # The names of its agents are free for its next process, which has another journal.
    leases.register(serving_host("j-3", "j-3", agent="math"))
    assert live_journals(leases) == {"j-2": ["j-2", "j-1"], "j-3": ["j-3"]}


def test_an_adopted_journal_taken_over_again_belongs_to_the_last_host_only(
    leases: LeaseTable,
) -> None:
    leases.register(serving_host("j-2", "j-2", "j-1"))
    leases.register(serving_host("j-3", "j-3", "j-1"))
    assert live_journals(leases) == {"j-2": ["j-2"], "j-3": ["j-3", "j-1"]}


class CountedHost:
    """A host that counts how often its journals are read."""

    def __init__(self, registered: registry_service_pb2.Host) -> None:
        self.reads = 0
        self._registered = registered

    def __getattr__(self, name: str) -> Any:
        self.reads += name == "journal_ids"
        return getattr(self._registered, name)


def count_reads(
    check: Callable[[Any, LeaseTable], object], leases: LeaseTable, *, hosts: int
) -> int:
    for number in range(hosts):
        leases.register(serving_host(f"h-{number}", f"j-{number}"))
    checked = CountedHost(serving_host("new", "j-new"))
    check(checked, leases)
    return checked.reads


@pytest.mark.parametrize(
    "check",
    [
        lambda checked, leases: leases.check(checked),
        lambda checked, leases: OwnerTable().check(
            checked,
            Identity.for_agents("mesh", ["math"]),
            [each for each, _ in leases.list_live()],
        ),
    ],
    ids=["names", "owners"],
)
def test_a_check_reads_the_journals_of_its_host_once_and_not_for_each_live_host(
    clock: ManualClock, check: Callable[[Any, LeaseTable], object]
) -> None:
    few, many = (
        count_reads(check, LeaseTable(lease_s=10.0, clock=clock), hosts=hosts) for hosts in (1, 20)
    )
    assert few == many


def test_no_lease_expires_while_renewal_was_impossible(
    leases: LeaseTable, clock: ManualClock
) -> None:
    leases.register(host("h-1"))
    clock.now += 12
    leases.extend(12)
    assert live_hosts(leases) == ["h-1"]
    clock.now += 10
    assert live_hosts(leases) == []
