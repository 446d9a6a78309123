"""The ids that clients of v0.1 choose for their tasks, and the tasks that these stand for.

The mesh keeps them, in the journal of the agent's host: bridges come and go.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

from trunkline.client import Directory, HostClient, allocate_task_id
from trunkline.errors import AgentNotFoundError, TaskNotFoundError, TrunklineError
from trunkline_bridge.edge.caller import Caller


class TaskAliases:
    """Each caller's account has its own, for each agent."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def find(self, caller: Caller, client_id: str) -> str:
        """Return the task that an id stands for, which may not exist yet; empty: for none.

        An id that the mesh has given to a task stands for that.

        Raises:
            TrunklineError: a host that might know it can't be asked.
        """
        if self._directory.knows_task_host(client_id):
            return client_id
        alias = _alias(caller, client_id)
        clients = list(self._clients(caller.agent))
        # Nearly all are where their agent is.
        found = await _resolve(clients[0], caller.account, alias) if clients else ""
        return found or await _resolve_anywhere(clients[1:], caller.account, alias)

    def new_task_id(self, caller: Caller) -> str:
        """Return an id for a new task of the agent's."""
        return allocate_task_id(self._directory.get_agent_host(caller.agent))

    async def bind(
        self, caller: Caller, client_id: str, task_id: str, *, replaces: str = ""
    ) -> str:
        """Let an id stand for a task; return the task that it stands for now.

        That is another one if somebody else was faster.
        """
        client = self._directory.client_for_agent(caller.agent)
        alias = _alias(caller, client_id)
        return await client.set_task_alias(caller.account, alias, task_id, replaces)

    def may_create(self, caller: Caller, task_id: str) -> bool:
        """Whether a task of this id may still be made: its journal is where its agent runs now."""
        host = self._directory.get_agent_host(caller.agent)
        return task_id.partition("-")[0] in host.journal_ids[:1]

    def _clients(self, agent: str) -> Iterator[HostClient]:
        """Clients of the hosts that have journals, the agent's first."""
        host_id = ""
        # An agent's tasks outlive it.
        with suppress(AgentNotFoundError):
            host_id = self._directory.get_agent_host(agent).host_id
            yield self._directory.client_for_agent(agent)
        for host in self._directory.hosts:
            if host.journal_ids and host.host_id != host_id:
                yield self._directory.client_for_task(f"{host.journal_ids[0]}-")


def _alias(caller: Caller, client_id: str) -> str:
    return f"{caller.agent}/{client_id}"


async def _resolve(client: HostClient, account: str, alias: str) -> str:
    try:
        return await client.resolve_task_alias(account, alias)
    except TaskNotFoundError:
        return ""


async def _resolve_anywhere(clients: Sequence[HostClient], account: str, alias: str) -> str:
    """Ask all at once; one that can't be asked matters only if none of the others knows."""
    found: list[str] = []
    problems: list[TrunklineError] = []

    async def ask(client: HostClient) -> None:
        try:
            found.append(await _resolve(client, account, alias))
        except TrunklineError as error:
            problems.append(error)

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(ask(client))
    known = next(filter(None, found), "")
    if not known and problems:
        raise problems[0]
    return known
