"""The versions of the tables in a database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from trunkline.core.backoff import Backoff

if TYPE_CHECKING:
    from trunkline.core.postgres.database import Connection

# What a process gets if another one creates the same tables at the same time.
_CREATED_MEANWHILE: Final = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
)
_MAX_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one store. Stores have versions of their own, so they change independently.

    The names of all tables begin with `trunkline_`, so that a database can be shared with other
    programs. The tables are in the first schema of the role's search path.
    """

    part: str
    """The name of the store, such as `journals`."""
    steps: Sequence[Sequence[str]]
    """The statements that lead from each version to the next. Released steps never change."""

    @property
    def version(self) -> int:
        """The version that the steps lead to."""
        return len(self.steps)

    async def prepare(self, connection: "Connection") -> str:
        """Create the tables, or check their version. Return the problem, or "".

        Processes that start at the same time create the tables once.
        """
        backoff = Backoff()
        tries = 0
        while (version := await self._read_version(connection)) is None:
            tries += 1
            try:
                await self._create(connection)
            except _CREATED_MEANWHILE:
                # Another program's tables stay in the way.
                if tries == _MAX_TRIES:
                    raise
                await backoff.pause()
        if version == self.version:
            return ""
        return (
            f"its tables of {self.part} have version {version}, and this program's have "
            f"{self.version}; use the program that made them"
        )

    async def _create(self, connection: "Connection") -> None:
        async with connection.transaction():
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS trunkline_schema "
                "(part text PRIMARY KEY, version integer NOT NULL)"
            )
            # One process inserts the row, and the others wait for its transaction.
            await connection.execute(
                "INSERT INTO trunkline_schema VALUES ($1, $2)", self.part, self.version
            )
            for statement in (each for step in self.steps for each in step):
                await connection.execute(statement)

    async def _read_version(self, connection: "Connection") -> int | None:
        if await connection.fetchval("SELECT to_regclass('trunkline_schema')") is None:
            return None
        version: int | None = await connection.fetchval(
            "SELECT version FROM trunkline_schema WHERE part = $1", self.part
        )
        return version
