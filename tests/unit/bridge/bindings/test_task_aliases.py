"""Aliases of tasks are found in the journal that has them."""

from typing import Any

import pytest

from trunkline.errors import (
    AgentNotFoundError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.v1 import registry_service_pb2
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.versions.v0_1.task_aliases import TaskAliases

CALLER = Caller(agent="echo", account="acme")
ALIAS = ("acme", "echo/chosen")
AWAY = PeerUnavailableError("host", "is away")


class Host:
    """A host that has some aliases or is unreachable."""

    def __init__(self, *, problem: TrunklineError | None = None, **known: str) -> None:
        self.asked = 0
        self._known = known
        self._problem = problem

    async def resolve_task_alias(self, account: str, alias: str) -> str:
        self.asked += 1
        if self._problem is not None:
            raise self._problem
        if (account, alias) != ALIAS or "chosen" not in self._known:
            raise TaskNotFoundError(alias)
        return self._known["chosen"]


class Mesh:
    """Hosts with one journal each. The first one runs the agent."""

    def __init__(self, *clients: Host, has_agent: bool = True) -> None:
        self._clients = clients
        self._has_agent = has_agent
        self.hosts = [
            registry_service_pb2.Host(host_id=f"host-{n}", journal_ids=[f"jrnl000{n}"])
            for n in range(len(clients))
        ]
        # A host with tools only has no journal.
        self.hosts.append(registry_service_pb2.Host(host_id="tools"))

    def knows_task_host(self, task_id: str) -> bool:
        return task_id.startswith("jrnl0000-")

    def get_agent_host(self, name: str) -> registry_service_pb2.Host:
        if not self._has_agent:
            raise AgentNotFoundError(name)
        return self.hosts[0]

    def client_for_agent(self, name: str) -> Host:
        self.get_agent_host(name)
        return self._clients[0]

    def client_for_task(self, task_id: str) -> Host:
        return self._clients[int(task_id[:8][-1])]


def aliases(mesh: Any) -> TaskAliases:
    return TaskAliases(mesh)


async def test_nearly_all_ids_are_where_their_agent_is() -> None:
    here, there = Host(chosen="jrnl0000-a"), Host(chosen="jrnl0001-b")
    assert await aliases(Mesh(here, there)).find(CALLER, "chosen") == "jrnl0000-a"
    assert (here.asked, there.asked) == (1, 0)


async def test_an_id_of_an_agent_that_moved_is_found_where_its_journal_is() -> None:
    mesh = Mesh(Host(), Host(problem=AWAY), Host(chosen="jrnl0002-c"))
    assert await aliases(mesh).find(CALLER, "chosen") == "jrnl0002-c"


async def test_so_are_the_ids_of_an_agent_that_has_left() -> None:
    mesh = Mesh(Host(), Host(chosen="jrnl0001-b"), has_agent=False)
    assert await aliases(mesh).find(CALLER, "chosen") == "jrnl0001-b"


async def test_an_id_that_nobody_knows_is_new() -> None:
    assert await aliases(Mesh(Host(), Host())).find(CALLER, "chosen") == ""
    assert await aliases(Mesh(has_agent=False)).find(CALLER, "chosen") == ""


@pytest.mark.parametrize("mesh", [Mesh(Host(), Host(problem=AWAY)), Mesh(Host(problem=AWAY))])
async def test_an_id_isn_t_new_while_somebody_who_may_know_it_can_t_be_asked(mesh: Mesh) -> None:
    with pytest.raises(PeerUnavailableError):
        await aliases(mesh).find(CALLER, "chosen")


async def test_an_id_that_the_mesh_gave_stands_for_itself() -> None:
    here = Host()
    assert await aliases(Mesh(here)).find(CALLER, "jrnl0000-a") == "jrnl0000-a"
    assert here.asked == 0


def test_a_task_may_still_be_made_where_its_agent_runs() -> None:
    assert aliases(Mesh(Host())).may_create(CALLER, "jrnl0000-a")
    assert not aliases(Mesh(Host())).may_create(CALLER, "jrnl0001-a")
