"""The agents that an MCP server offers: the present agents of a mesh, or named agents."""

import asyncio
from collections.abc import Sequence

from trunkline.mesh.client import Directory
from trunkline_bridge.mcp.agent_clients import AgentClients, CallerCredentials
from trunkline_bridge.mcp.agent_tools import AgentInfo


class MeshAgents:
    """All agents of a mesh."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._listed_at = -1
        self._agents: Sequence[AgentInfo] = ()

    def list_agents(self) -> Sequence[AgentInfo]:
        """Return the agents, sorted by name. The list is made again when the directory changes."""
        if self._listed_at != self._directory.revision:
            self._listed_at = self._directory.revision
            agents = self._directory.list_agents()
            self._agents = [AgentInfo(name, agent.card) for name, agent in agents.items()]
        return self._agents

    async def wait_for_change(self) -> None:
        """Wait until agents have come or gone since the last call."""
        names = [agent.name for agent in self.list_agents()]
        while names == [agent.name for agent in self.list_agents()]:
            await self._directory.wait_for_change(self._directory.revision)


class NamedAgents:
    """Named agents, with their cards at the start."""

    def __init__(self, agents: Sequence[AgentInfo]) -> None:
        self._agents = agents

    @classmethod
    async def read(
        cls, names: Sequence[str], clients: AgentClients, credentials: CallerCredentials
    ) -> "NamedAgents":
        """Read the cards of agents.

        Raises:
            TrunklineError: a card can't be read.
        """
        agents = []
        for name in sorted(set(names)):
            async with clients.client(name, credentials) as client:
                agents.append(AgentInfo(name, await client.card()))
        return cls(agents)

    def list_agents(self) -> Sequence[AgentInfo]:
        """Return the agents, sorted by name."""
        return self._agents

    async def wait_for_change(self) -> None:
        """Wait forever."""
        await asyncio.Event().wait()
