"""The versions of the tables in a database."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

if TYPE_CHECKING:
    from trunkline.core.postgres.database import Connection


# The errors of statements that create a table which another process has created meanwhile.
_EXISTS_NOW: Final = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateTableError,
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one store. Stores have versions of their own, so they change independently."""

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
        version = await self._read_version(connection)
        if version is None:
            # If processes create the table at the same time, IF NOT EXISTS is no help, and all but
            # one of them fail when the table is there.
            with contextlib.suppress(*_EXISTS_NOW):
                await connection.execute(
                    "CREATE TABLE IF NOT EXISTS trunkline_schema "
                    "(part text PRIMARY KEY, version integer NOT NULL)"
                )
            async with connection.transaction():
                # One process inserts the row, and the others wait for its transaction.
                inserted = await connection.fetchval(
                    "INSERT INTO trunkline_schema VALUES ($1, $2) ON CONFLICT DO NOTHING "
                    "RETURNING version",
                    self.part,
                    self.version,
                )
                if inserted:
                    for statement in (each for step in self.steps for each in step):
                        await connection.execute(statement)
            version = await self._read_version(connection)
        if version == self.version:
            return ""
        return (
            f"its tables of {self.part} have version {version}, and this program's have "
            f"{self.version}; use the program that made them"
        )

    async def _read_version(self, connection: "Connection") -> int | None:
        if await connection.fetchval("SELECT to_regclass('trunkline_schema')") is None:
            return None
        version: int | None = await connection.fetchval(
            "SELECT version FROM trunkline_schema WHERE part = $1", self.part
        )
        return version
