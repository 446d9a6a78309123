"""Maps the task ids that clients of v0.1 choose to tasks of the mesh.

The mapping is stored in the journal of the agent's host, because bridges are stateless.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

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
    """The aliases of tasks, separate for each account and agent."""

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
        alias = _alias(caller, client_id)
        clients = list(self._clients(caller.agent))
        # Most aliases are on the host of their agent.
        task_id = await _resolve(clients[0], caller.account, alias) if clients else ""
        return task_id or await _resolve_anywhere(clients[1:], caller.account, alias)

    def new_task_id(self, caller: Caller) -> str:
        """Return an id for a new task of the agent."""
        return allocate_task_id(self._directory.get_agent_host(caller.agent))

    async def bind(
        self, caller: Caller, client_id: str, task_id: str, *, replaces: str = ""
    ) -> str:
        """Bind a client's id to a task and return the task to which the id is now bound.

        If a concurrent request has bound the id already, that is another task. `replaces` is the
        task to which the id may be bound so far.
        """
        client = self._directory.client_for_agent(caller.agent)
        alias = _alias(caller, client_id)
        request = task_service_pb2.SetTaskAliasRequest(
            account=caller.account, alias=alias, task_id=task_id, replaces=replaces
        )
        return (await client.tasks.SetTaskAlias(request)).task_id

    def may_create(self, caller: Caller, task_id: str) -> bool:
        """Return whether the agent's host can create a task with this id, in its own journal."""
        host = self._directory.get_agent_host(caller.agent)
        return parse_journal_id(task_id) in host.journal_ids[:1]

    def _clients(self, agent: str) -> Iterator[HostClient]:
        """Yield clients of the hosts with journals, the agent's host first."""
        host_id = ""
        # Tasks outlive their agent.
        with suppress(AgentNotFoundError, PeerUnavailableError):
            host = self._directory.get_agent_host(agent)
            host_id = host.host_id
            # If the host does not answer, another host may read its aliases.
            yield self._directory.client_for_task(f"{host.journal_ids[0]}-")
        for host in self._directory.hosts:
            if host.journal_ids and host.host_id != host_id:
                yield self._directory.client_for_task(f"{host.journal_ids[0]}-")


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


async def _resolve_anywhere(clients: Sequence[HostClient], account: str, alias: str) -> str:
    """Query all hosts in parallel; an error of one is raised only if no other has the alias."""
    results: list[str] = []
    problems: list[TrunklineError] = []

    async def query(client: HostClient) -> None:
        try:
            results.append(await _resolve(client, account, alias))
        except TrunklineError as error:
            problems.append(error)

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(query(client))
    task_id = next(filter(None, results), "")
    if not task_id and problems:
        raise problems[0]
    return task_id
