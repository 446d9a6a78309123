"""The versions of the tables in a database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from trunkline.core.backoff import Backoff

if TYPE_CHECKING:
    from trunkline.core.postgres.database import Connection

# What a transaction gets if another process creates the same tables at the same time, or if a
# table is in use for longer than `_LOCK_TIMEOUT`.
_PASSING: Final = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.LockNotAvailableError,
)
# What a role gets that may not create tables, or has no schema in its search path.
_REFUSED: Final = (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError)
_MAX_TRIES: Final = 5
# A change of a table waits for the transactions that use it, and all later ones wait for the
# change. So it gives up soon, and is tried again.
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '3s'"
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS trunkline_schema (part text PRIMARY KEY, version integer NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one store. Stores have versions of their own, so they change independently.

    The names of all tables begin with `trunkline_`, so that a database can be shared with other
    programs. The tables are in the first schema of the role's search path.

    Processes create missing tables when they first use them. Only `trunkline data migrate` changes
    tables that are there, while processes of the version before go on. So a step adds tables, or
    columns with a default, and neither renames nor removes what the version before uses.
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
        version = await self.read_version(connection)
        if version == 0:
            try:
                version = await self.migrate(connection)
            except _REFUSED as error:
                return (
                    f"its tables of {self.part} are missing, and this role can't create them "
                    f"({error}); let a role that can run `trunkline data migrate`, or the "
                    "statements of `trunkline data migrate --dry-run`"
                )
        if version < self.version:
            return (
                f"its tables of {self.part} have version {version}, and this program needs "
                f"{self.version}; run `trunkline data migrate` of this program: the mesh may go on"
            )
        return self.find_problem(version)

    def find_problem(self, version: int) -> str:
        """Return why this program can neither use nor change tables of a version, or ""."""
        if version <= self.version:
            return ""
        return (
            f"its tables of {self.part} have version {version}, and this program knows only "
            f"{self.version}; a later version of trunkline changed them: use that version"
        )

    async def read_version(self, connection: "Connection") -> int:
        """Return the version of the tables, or 0 if there are none."""
        if await connection.fetchval("SELECT to_regclass('trunkline_schema')") is None:
            return 0
        version: int | None = await connection.fetchval(
            "SELECT version FROM trunkline_schema WHERE part = $1", self.part
        )
        return version or 0

    async def migrate(self, connection: "Connection") -> int:
        """Create the tables, or bring them to this version; return their version.

        It is one transaction, which locks the version's row, so that of several processes one makes
        the change, and the others find it made.
        """
        backoff = Backoff()
        for _ in range(_MAX_TRIES - 1):
            try:
                return await self._migrate(connection)
            except _PASSING:
                await backoff.pause()
        return await self._migrate(connection)

    async def _migrate(self, connection: "Connection") -> int:
        async with connection.transaction():
            for statement in self._lock_version():
                await connection.execute(statement)
            version = await self.read_version(connection)
            for statement in self._change(version):
                await connection.execute(statement)
            return max(version, self.version)

    def build_script(self, version: int) -> list[str]:
        """Return the statements by which `migrate` changes tables of a version; none if up to date.

        They can be run by hand, for example by a role that may create tables.
        """
        if version >= self.version:
            return []
        return ["BEGIN", *self._lock_version(), *self._change(version), "COMMIT"]

    def _lock_version(self) -> list[str]:
        # The update locks the row until the end of the transaction.
        return [
            _LOCK_TIMEOUT,
            _CREATE,
            " ".join(
                (
                    "INSERT INTO trunkline_schema VALUES",
                    f"('{self.part}', 0)",
                    "ON CONFLICT (part) DO UPDATE SET version = trunkline_schema.version",
                )
            ),
        ]

    def _change(self, version: int) -> list[str]:
        if version >= self.version:
            return []
        return [
            *(statement for step in self.steps[version:] for statement in step),
            " ".join(
                (
                    "UPDATE trunkline_schema",
                    f"SET version = {self.version} WHERE part = '{self.part}'",
                )
            ),
        ]
