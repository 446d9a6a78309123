"""A bounded log in PostgreSQL, to which the processes of all machines append."""

import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.core.postgres.schema import Schema
from trunkline.core.runtime import sleep_until_tick
from trunkline.errors import JournalUnavailableError

if TYPE_CHECKING:
    import asyncpg

logger = logging.getLogger(__name__)

# A deletion removes up to so many entries in a transaction, and up to so many times.
_DELETED: Final = 1000
_DELETIONS: Final = 20
_DELETION_INTERVAL_S: Final = 60.0
_LAST_POSITION: Final = 2**63 - 1

# In the statements, NAME is the name of the log.
_CREATE: Final = (
    # Every append locks this row. So positions are dense and in the order of commits, and a reader
    # that continues after a position misses nothing.
    "CREATE TABLE trunkline_NAME_log (one integer PRIMARY KEY CHECK (one = 1), "
    "log_id text NOT NULL DEFAULT gen_random_uuid()::text, position bigint NOT NULL, "
    "size_bytes bigint NOT NULL) WITH (fillfactor = 10)",
    "INSERT INTO trunkline_NAME_log (one, position, size_bytes) VALUES (1, 0, 0)",
    # writer, number: the entry of a process, so that a repeated append stores it once
    "CREATE TABLE trunkline_NAME (position bigint PRIMARY KEY, writer text NOT NULL, "
    "number bigint NOT NULL, written timestamptz NOT NULL DEFAULT now(), body bytea NOT NULL, "
    "UNIQUE (writer, number))",
)
_LOCK: Final = "SELECT size_bytes FROM trunkline_NAME_log FOR UPDATE"
_HAS_STORED: Final = "SELECT 1 FROM trunkline_NAME WHERE writer = $1 AND number > $2 LIMIT 1"
_APPEND: Final = (
    "WITH log AS (UPDATE trunkline_NAME_log SET position = position + cardinality($3::bytea[]), "
    "size_bytes = size_bytes + $4 RETURNING position) "
    "INSERT INTO trunkline_NAME (position, writer, number, body) "
    "SELECT log.position - cardinality($3) + n, $1, $2 + n, body "
    "FROM log, unnest($3) WITH ORDINALITY AS bodies (body, n)"
)
_HAS_OLD: Final = (
    "SELECT 1 FROM (SELECT written FROM trunkline_NAME ORDER BY position LIMIT 1) AS oldest "
    "WHERE written < now() - $1 * interval '1 second'"
)
# An entry goes if the log with it and all later ones is too large. The last one stays.
_DELETE_OLD: Final = (
    "WITH oldest AS (SELECT position, written, octet_length(body) AS bytes "
    "FROM trunkline_NAME ORDER BY position LIMIT $3), "
    "old AS (SELECT position, written, bytes, sum(bytes) OVER (ORDER BY position) - bytes "
    "AS earlier FROM oldest), "
    "gone AS (DELETE FROM trunkline_NAME AS entry USING old, trunkline_NAME_log AS head "
    "WHERE entry.position = old.position "
    "AND (old.written < now() - $2 * interval '1 second' "
    "OR (head.size_bytes - old.earlier > $1 AND old.position < head.position)) "
    "RETURNING old.bytes), "
    "counted AS (UPDATE trunkline_NAME_log AS head SET size_bytes = head.size_bytes "
    "- coalesce((SELECT sum(bytes) FROM gone), 0)) SELECT count(*) FROM gone"
)
_READ: Final = (
    "SELECT position, writer, body FROM trunkline_NAME WHERE position > $1 "
    "ORDER BY position LIMIT $2"
)
_READ_BACKWARDS: Final = (
    "SELECT position, writer, body FROM trunkline_NAME WHERE position < $1 "
    "ORDER BY position DESC LIMIT $2"
)
_READ_ID: Final = "SELECT log_id FROM trunkline_NAME_log"


def log_schema(name: str) -> Schema:
    """Return the tables of a log: `trunkline_NAME`, and `trunkline_NAME_log` for the log itself."""
    return Schema(name, [[statement.replace("NAME", name) for statement in _CREATE]])


class LogEntry(NamedTuple):
    """An entry of a log."""

    position: int
    writer: str
    """The random name of the process that appended it."""
    body: bytes


class SharedLog:
    """A log with entries of bytes, which are never changed. The oldest are deleted.

    All methods raise JournalUnavailableError if the database can't be reached.
    """

    def __init__(
        self, database: PostgresDatabase, schema: Schema, *, size_bytes: int, age_s: float
    ) -> None:
        """`schema` is one of `log_schema`. The limits are for the entries of all writers."""
        self._database = database
        self._schema = schema
        self._limits = size_bytes, age_s
        self.writer: str = secrets.token_hex(8)
        """The random name of this process in its entries."""
        self._number = 0

    @property
    def place(self) -> str:
        """The table and the database, for people."""
        return f"table trunkline_{self._schema.part} of {self._database.name}"

    async def append(self, bodies: Sequence[bytes]) -> None:
        """Append entries, all or none.

        The oldest entries are deleted when the log is too large. After an error, the same entries
        must be appended again before any others. They are stored once.
        """
        await self._database.prepare(self._schema)
        size = sum(map(len, bodies))
        async with self._database.transaction() as connection:
            # The look-up after the lock sees what an earlier try has stored.
            total = await connection.fetchval(self._sql(_LOCK))
            if not await connection.fetchval(self._sql(_HAS_STORED), self.writer, self._number):
                await connection.execute(
                    self._sql(_APPEND), self.writer, self._number, list(bodies), size
                )
                total += size
        self._number += len(bodies)
        if total > self._limits[0]:
            await self._delete_old()

    async def delete_old_entries(self) -> None:
        """Delete entries that are too old, at once and then every minute, until cancelled."""
        while True:
            try:
                # Without a lock, because most of the time nothing is too old.
                if await self._fetch(_HAS_OLD, self._limits[1]):
                    await self._delete_old()
            except JournalUnavailableError as error:
                extra = {"log": self.place, "problem": error.problem}
                logger.debug("log.old_entries_not_deleted", extra=extra)
            await sleep_until_tick(_DELETION_INTERVAL_S)

    async def _delete_old(self) -> None:
        """Delete entries that are too old, and the oldest until the log is not too large."""
        for _ in range(_DELETIONS):
            async with self._database.transaction() as connection:
                await connection.fetchval(self._sql(_LOCK))
                deleted = await connection.fetchval(self._sql(_DELETE_OLD), *self._limits, _DELETED)
            if deleted < _DELETED:
                return

    async def read(self, after: int, *, limit: int) -> list[LogEntry]:
        """Return the entries after a position, the oldest first."""
        return _read(await self._fetch(_READ, after, limit))

    async def read_backwards(self, before: int | None, *, limit: int) -> list[LogEntry]:
        """Return the entries before a position, or the last ones, the newest first."""
        first = _LAST_POSITION if before is None else min(before, _LAST_POSITION)
        return _read(await self._fetch(_READ_BACKWARDS, first, limit))

    async def read_id(self) -> str:
        """Return the random name of the log. Positions of another log have no meaning in it."""
        rows = await self._fetch(_READ_ID)
        return str(rows[0]["log_id"])

    async def _fetch(self, query: str, *values: object) -> "list[asyncpg.Record]":
        await self._database.prepare(self._schema)
        return await self._database.fetch(self._sql(query), *values)

    def _sql(self, statement: str) -> str:
        return statement.replace("NAME", self._schema.part)


def _read(rows: "Sequence[asyncpg.Record]") -> list[LogEntry]:
    return [LogEntry(row["position"], row["writer"], row["body"]) for row in rows]
