"""PostgreSQL for a trial: one server, or a primary whose commits wait for a standby."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from harness.journal.postgres_server import PostgresServer
from harness.network.nodes import Node

# Faults kill processes, and what they have written stays in the memory of the machine.
_UNSYNCED: Final = "fsync=off"
_SYNCHRONOUS: Final = "synchronous_standby_names=*"


class Database:
    """Servers at nodes of their own: the primary, and a standby if there is a second node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Start the servers."""
        options = (_UNSYNCED, _SYNCHRONOUS) if len(nodes) > 1 else (_UNSYNCED,)
        self._servers = [PostgresServer(*options, node=nodes[0])]
        for node in nodes[1:]:
            standby = PostgresServer(*options, node=node, primary=self.primary)
            self._servers.append(standby)
        hosts = ",".join(f"{server.host}:{server.port}" for server in self._servers)
        self.url = f"postgresql://postgres@{hosts}/postgres"

    @property
    def primary(self) -> PostgresServer:
        """The server that accepts writes."""
        return self._servers[0]

    def fail_over(self) -> None:
        """Promote the standby of a primary that was killed, and make a new standby in its place.

        What the primary acknowledged is at the standby.
        """
        killed, standby = self._servers
        standby.promote()
        killed.copy(standby)
        self._servers.reverse()

    def remove(self) -> None:
        """Stop the servers and remove their folders."""
        for server in self._servers:
            server.remove()


@asynccontextmanager
async def open_database(*nodes: Node) -> AsyncIterator[Database]:
    """Run the servers for the length of a block."""
    database = await asyncio.to_thread(partial(Database, nodes))
    try:
        yield database
    finally:
        await asyncio.to_thread(database.remove)
