"""Task aliases are found in the journal that stores them."""

from typing import Any, Self

import pytest

from trunkline.errors import (
    AgentNotFoundError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.v1 import registry_service_pb2, task_service_pb2
from trunkline_bridge.a2a.versions.v0_1.task_aliases import TaskAliases
from trunkline_bridge.callers.caller import Caller

CALLER = Caller(agent="echo", account="acme")
ALIAS = ("acme", "echo/chosen")
UNREACHABLE = PeerUnavailableError("host", "is away")


class Host:
    """A host that stores some aliases or is unreachable."""

    def __init__(self, *, problem: TrunklineError | None = None, **stored: str) -> None:
        self.requests = 0
        self._stored = stored
        self._problem = problem

    @property
    def tasks(self) -> Self:
        return self

    async def ResolveTaskAlias(  # noqa: N802
        self, request: task_service_pb2.ResolveTaskAliasRequest
    ) -> task_service_pb2.ResolveTaskAliasResponse:
        self.requests += 1
        if self._problem is not None:
            raise self._problem
        is_stored = (request.account, request.alias) == ALIAS
        task_id = self._stored.get("chosen", "") if is_stored else ""
        return task_service_pb2.ResolveTaskAliasResponse(task_id=task_id)


class Mesh:
    """Hosts with one journal each. The first one runs the agent."""

    def __init__(self, *clients: Host, has_agent: bool = True) -> None:
        self._clients = clients
        self._has_agent = has_agent
        self.hosts = [
            registry_service_pb2.Host(
                host_id=f"host-{n}", address=f"host-{n}:1", journal_ids=[f"jrnl000{n}"]
            )
            for n in range(len(clients))
        ]
        # A host that runs only tools has no journal.
        self.hosts.append(registry_service_pb2.Host(host_id="tools"))

    def knows_task_host(self, task_id: str) -> bool:
        return task_id.startswith("jrnl0000-")

    def list_replicas(self, name: str) -> list[registry_service_pb2.Host]:
        if not self._has_agent:
            raise AgentNotFoundError(name)
        return self.hosts[:1]

    def rank_hosts(self, agent: str, _name: str) -> list[registry_service_pb2.Host]:
        return self.list_replicas(agent)

    def client_at(self, address: str) -> Host:
        return self._clients[int(address.removeprefix("host-").removesuffix(":1"))]


def make_aliases(mesh: Any) -> TaskAliases:
    return TaskAliases(mesh)


async def test_an_alias_is_looked_up_first_on_the_host_of_its_agent() -> None:
    own, other = Host(chosen="jrnl0000-a"), Host(chosen="jrnl0001-b")
    assert await make_aliases(Mesh(own, other)).find(CALLER, "chosen") == "jrnl0000-a"
    assert (own.requests, other.requests) == (1, 0)


async def test_an_alias_of_a_moved_agent_is_found_in_its_old_journal() -> None:
    mesh = Mesh(Host(), Host(problem=UNREACHABLE), Host(chosen="jrnl0002-c"))
    assert await make_aliases(mesh).find(CALLER, "chosen") == "jrnl0002-c"


async def test_an_earlier_host_that_does_not_find_an_alias_does_not_know_it() -> None:
    earlier = Host(problem=TaskNotFoundError("chosen"))
    assert await make_aliases(Mesh(earlier)).find(CALLER, "chosen") == ""
    mesh = Mesh(earlier, Host(chosen="jrnl0001-b"))
    assert await make_aliases(mesh).find(CALLER, "chosen") == "jrnl0001-b"


async def test_an_alias_of_a_removed_agent_is_found_in_its_journal() -> None:
    mesh = Mesh(Host(), Host(chosen="jrnl0001-b"), has_agent=False)
    assert await make_aliases(mesh).find(CALLER, "chosen") == "jrnl0001-b"


@pytest.mark.parametrize(
    "mesh", [Mesh(Host(), Host(problem=UNREACHABLE)), Mesh(Host(problem=UNREACHABLE))]
)
async def test_an_alias_is_not_new_while_a_host_is_unreachable(mesh: Mesh) -> None:
    with pytest.raises(PeerUnavailableError):
        await make_aliases(mesh).find(CALLER, "chosen")


def test_a_task_may_be_created_on_the_host_of_its_agent() -> None:
    assert make_aliases(Mesh(Host())).may_create(CALLER, "jrnl0000-a")
    assert not make_aliases(Mesh(Host())).may_create(CALLER, "jrnl0001-a")
