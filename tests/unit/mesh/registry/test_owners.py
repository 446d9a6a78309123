"""No process that joined can make the registry forget others, or fill it."""

from dataclasses import replace
from typing import Any

import pytest

from trunkline.core.identity import Identity
from trunkline.errors import InvalidArgumentError, PermissionDeniedError
from trunkline.mesh.registry.owners import OwnerTable
from trunkline.v1 import registry_service_pb2

VICTIM = replace(Identity.for_agents("mesh-1", ["victim"]), instance="i-1")
EVIL = replace(Identity.for_agents("mesh-1", ["evil"]), instance="i-2")


def host(
    host_id: str = "host", identity: Identity = EVIL, **fields: Any
) -> registry_service_pb2.Host:
    return registry_service_pb2.Host(
        host_id=host_id, address="127.0.0.1:1", identity=str(identity), **fields
    )


async def test_nobody_makes_the_registry_forget_the_owner_of_a_journal() -> None:
    owners = OwnerTable()
    await owners.record(["journal"], VICTIM)
    await owners.record([f"own-{number}" for number in range(150_000)], EVIL)
    with pytest.raises(PermissionDeniedError, match="agents/victim owns"):
        owners.check(host(journal_ids=["journal"]), EVIL, [])


async def test_the_oldest_journals_of_an_owner_are_forgotten_and_not_the_newest() -> None:
    owners = OwnerTable()
    await owners.record(["old"], VICTIM)
    await owners.record([f"own-{number}" for number in range(9_999)], VICTIM)
    await owners.record(["new"], VICTIM)
    with pytest.raises(PermissionDeniedError, match="agents/victim owns"):
        owners.check(host(journal_ids=["new"]), EVIL, [])
    owners.check(host(journal_ids=["old"]), EVIL, [])


@pytest.mark.parametrize(
    "large",
    [
        host(services=["s" * 2_000_000]),
        host(journal_ids=[str(number) for number in range(2_000)]),
        host(journal_ids=["j" * 1_000]),
        host("h" * 1_000),
        registry_service_pb2.Host(agents=[registry_service_pb2.AgentRegistration()] * 200),
    ],
    ids=["bytes", "journals", "journal id", "host id", "agents"],
)
def test_a_host_that_is_too_large_is_refused(large: registry_service_pb2.Host) -> None:
    with pytest.raises(InvalidArgumentError):
        OwnerTable().check_size(large, EVIL, [])


def test_all_hosts_of_the_same_agents_are_limited_together() -> None:
    owners = OwnerTable()
    another = replace(EVIL, instance="i-3")
    many = [host(f"h-{number}", another) for number in range(100)]
    with pytest.raises(PermissionDeniedError, match="more than 100 hosts"):
        owners.check_size(host(), EVIL, many)
    large = [host(f"h-{number}", another, services=["s" * 1_000_000]) for number in range(4)]
    with pytest.raises(PermissionDeniedError, match="bytes together"):
        owners.check_size(host(services=["s" * 500_000]), EVIL, large)
    # Each may replace its own, and others are not affected.
    owners.check_size(host("h-1"), EVIL, many)
    owners.check_size(host(), VICTIM, many)
