"""Maps the task ids that clients of v0.1 choose to tasks of the mesh.

The mapping is stored in a journal of a host of the agent, because bridges are stateless.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from trunkline.errors import (
    AgentNotFoundError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.mesh.client import Directory, HostClient, allocate_task_id, parse_journal_id
from trunkline.v1 import task_service_pb2
from trunkline_bridge.callers.caller import Caller


class TaskAliases:
    """The aliases of tasks, separate for each account and agent.

    A new alias goes to the replica of the agent with the highest hash of the alias, so that two
    bridges that get the same id at once bind it at the same host, which decides.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def find(self, caller: Caller, client_id: str) -> str:
        """Return the task id for a client's id, or an empty text if the client's id is unknown.

        The task may not exist yet. A task id of the mesh is its own alias.

        Raises:
            TrunklineError: a host that might know the id is unreachable.
        """
        if self._directory.knows_task_host(client_id):
            return client_id
        return (await self._find_entry(caller, client_id)).task_id

    def new_task_id(self, caller: Caller, client_id: str) -> str:
        """Return an id for a new task of the agent, which a client's id will be bound to."""
        host = self._directory.choose_host(caller.agent, key=_alias(caller, client_id))
        return allocate_task_id(host)

    async def bind(
        self, caller: Caller, client_id: str, task_id: str, *, replaces: str = ""
    ) -> str:
        """Bind a client's id to a task and return the task to which the id is now bound.

        If a concurrent request has bound the id already, that is another task. `replaces` is the
        task to which the id may be bound so far.
        """
        client = self._directory.client_for_task(task_id)
        if replaces:
            # The host that has the alias changes it.
            client = (await self._find_entry(caller, client_id)).client or client
        request = task_service_pb2.SetTaskAliasRequest(
            account=caller.account,
            alias=_alias(caller, client_id),
            task_id=task_id,
            replaces=replaces,
        )
        return (await client.tasks.SetTaskAlias(request)).task_id

    def may_create(self, caller: Caller, task_id: str) -> bool:
        """Return whether a replica of the agent can create a task with this id in its journal."""
        journal_id = parse_journal_id(task_id)
        replicas = self._directory.list_replicas(caller.agent)
        return any(journal_id in host.journal_ids[:1] for host in replicas)

    async def _find_entry(self, caller: Caller, client_id: str) -> "_Entry":
        """Return the task of an alias and the host that has the alias, both empty if it is new."""
        alias = _alias(caller, client_id)
        clients = list(self._clients(caller.agent, alias))
        if not clients:
            return _Entry()
        # Most aliases are on the first host. If it does not answer, another host may read them.
        with suppress(PeerUnavailableError):
            if task_id := await _resolve(clients[0], caller.account, alias):
                return _Entry(task_id, clients[0])
            del clients[0]
        return await _resolve_anywhere(clients, caller.account, alias)

    def _clients(self, agent: str, alias: str) -> Iterator[HostClient]:
        """Yield clients of the hosts with journals, the replicas of the agent first."""
        ids: set[str] = set()
        # Tasks outlive their agent.
        with suppress(AgentNotFoundError, PeerUnavailableError):
            for host in self._directory.rank_hosts(agent, alias):
                ids.add(host.host_id)
                yield self._directory.client_at(host.address)
        for host in self._directory.hosts:
            if host.journal_ids and host.host_id not in ids:
                yield self._directory.client_at(host.address)


class _Entry(NamedTuple):
    """The task that an alias is bound to, and a client of the host that has the alias."""

    task_id: str = ""
    client: HostClient | None = None


def _alias(caller: Caller, client_id: str) -> str:
    return f"{caller.agent}/{client_id}"


async def _resolve(client: HostClient, account: str, alias: str) -> str:
    """Return the id of the task that an alias is bound to on a host; empty if it is not bound."""
    request = task_service_pb2.ResolveTaskAliasRequest(account=account, alias=alias)
    try:
        return (await client.tasks.ResolveTaskAlias(request)).task_id
    except TaskNotFoundError:
        # Hosts of earlier versions answer so.
        return ""


async def _resolve_anywhere(clients: Sequence[HostClient], account: str, alias: str) -> _Entry:
    """Query all hosts in parallel; an error of one is raised only if no other has the alias."""
    found: list[_Entry] = []
    problems: list[TrunklineError] = []

    async def query(client: HostClient) -> None:
        try:
            if task_id := await _resolve(client, account, alias):
                found.append(_Entry(task_id, client))
        except TrunklineError as error:
            problems.append(error)

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(query(client))
    if not found and problems:
        raise problems[0]
    return found[0] if found else _Entry()
