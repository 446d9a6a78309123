"""Leases begin, are renewed and run out by a clock that the test holds."""

import pytest

from harness.journal.manual_clock import ManualClock
from trunkline.errors import AgentNameTakenError, HostNotFoundError, InvalidArgumentError
from trunkline.registry.leases import LeaseTable
from trunkline.v1 import registry_service_pb2


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leases(clock: ManualClock) -> LeaseTable:
    return LeaseTable(lease_s=10.0, clock=clock)


def host(name: str, *agents: str, address: str = "") -> registry_service_pb2.Host:
    made = registry_service_pb2.Host(host_id=name, address=address or f"{name}:1")
    for agent in agents:
        made.agents.add().card.name = agent
    return made


def journals(leases: LeaseTable) -> dict[str, list[str]]:
    return {known.host_id: list(known.journal_ids) for known, _ in leases.list_live()}


def living(leases: LeaseTable) -> list[str]:
    return [known.host_id for known, _ in leases.list_live()]


def test_a_lease_runs_out_exactly_at_its_end(leases: LeaseTable, clock: ManualClock) -> None:
    leases.register(host("h-1"))
    clock.now += 9.99
    assert living(leases) == ["h-1"]
    clock.now += 0.01
    assert living(leases) == []


def test_a_renewed_lease_begins_anew_and_is_no_change_to_readers(
    leases: LeaseTable, clock: ManualClock
) -> None:
    leases.register(host("h-1"))
    revision = leases.revision
    clock.now += 9
    leases.renew("h-1")
    clock.now += 9
    assert living(leases) == ["h-1"]
    assert leases.revision == revision


def test_a_lease_that_ran_out_cannot_be_renewed(leases: LeaseTable, clock: ManualClock) -> None:
    leases.register(host("h-1"))
    clock.now += 10
    with pytest.raises(HostNotFoundError):
        leases.renew("h-1")


def test_the_next_end_is_that_of_the_oldest_lease(leases: LeaseTable, clock: ManualClock) -> None:
    assert leases.next_expiry_s() is None
    leases.register(host("h-1"))
    clock.now += 4
    leases.register(host("h-2"))
    assert leases.next_expiry_s() == 6
    leases.renew("h-1")
    assert leases.next_expiry_s() == 10
    clock.now += 20
    assert leases.next_expiry_s() == 0


def test_the_name_of_a_host_that_ran_out_is_free(leases: LeaseTable, clock: ManualClock) -> None:
    leases.register(host("h-1", "math"))
    with pytest.raises(AgentNameTakenError):
        leases.register(host("h-2", "math"))
    clock.now += 10
    leases.register(host("h-2", "math"))
    assert living(leases) == ["h-2"]


def test_a_refused_host_leaves_everything_as_it_was(leases: LeaseTable) -> None:
    leases.register(host("h-1", "math"))
    leases.register(host("h-2", "echo"))
    revision = leases.revision
    with pytest.raises(AgentNameTakenError):
        leases.register(host("h-2", "math"))
    assert leases.revision == revision
    assert [[a.card.name for a in known.agents] for known, _ in leases.list_live()] == [
        ["math"],
        ["echo"],
    ]


def test_what_is_registered_is_a_copy(leases: LeaseTable) -> None:
    given = host("h-1", "math")
    leases.register(given)
    given.agents[0].card.name = "changed"
    ((known, left_s),) = leases.list_live()
    assert known.agents[0].card.name == "math"
    assert left_s == 10


@pytest.mark.parametrize("nobody", [host(""), registry_service_pb2.Host(host_id="h-1")])
def test_a_host_needs_an_id_and_an_address(
    leases: LeaseTable, nobody: registry_service_pb2.Host
) -> None:
    nobody.address = "" if nobody.host_id else "h:1"
    with pytest.raises(InvalidArgumentError):
        leases.register(nobody)


def serving(
    name: str, *journal_ids: str, agent: str = "", address: str = ""
) -> registry_service_pb2.Host:
    made = host(name, *([agent] if agent else []), address=address)
    made.journal_ids.extend(journal_ids)
    return made


def test_a_host_that_is_started_again_takes_its_place_at_once_also_at_another_port(
    leases: LeaseTable,
) -> None:
    leases.register(serving("j-1", "j-1", agent="math", address="h:1"))
    leases.register(serving("j-1", "j-1", agent="math", address="h:2"))
    assert [(known.host_id, known.address) for known, _ in leases.list_live()] == [("j-1", "h:2")]


def test_who_takes_a_host_s_own_journal_over_takes_the_host_off_the_mesh(
    leases: LeaseTable,
) -> None:
    leases.register(serving("j-1", "j-1", agent="math"))
    leases.register(serving("j-2", "j-2", agent="echo"))
    leases.register(serving("j-2", "j-2", "j-1", agent="echo"))
    assert journals(leases) == {"j-2": ["j-2", "j-1"]}
    # Its agents' names are free for its next life, which has another journal.
    leases.register(serving("j-3", "j-3", agent="math"))
    assert journals(leases) == {"j-2": ["j-2", "j-1"], "j-3": ["j-3"]}


def test_an_adopted_journal_that_is_taken_over_again_is_nobody_else_s(leases: LeaseTable) -> None:
    leases.register(serving("j-2", "j-2", "j-1"))
    leases.register(serving("j-3", "j-3", "j-1"))
    assert journals(leases) == {"j-2": ["j-2"], "j-3": ["j-3", "j-1"]}


def test_while_nobody_could_renew_a_lease_none_runs_out(
    leases: LeaseTable, clock: ManualClock
) -> None:
    leases.register(host("h-1"))
    clock.now += 12
    leases.extend(12)
    assert living(leases) == ["h-1"]
    clock.now += 10
    assert living(leases) == []
