"""A bounded log in PostgreSQL, to which the processes of all machines append."""

import math
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.core.postgres.schema import Schema

if TYPE_CHECKING:
    import asyncpg

# A deletion removes up to so many entries in a transaction, and up to so many times.
_DELETED: Final = 1000
_DELETIONS: Final = 20
_DELETION_INTERVAL_S: Final = 60.0
_LAST_POSITION: Final = 2**63 - 1


def log_schema(name: str) -> Schema:
    """Return the tables of a log: `trunkline_NAME`, and `trunkline_NAME_log` for the log itself."""
    return Schema(
        name,
        [
            [
                # Every append locks this row. So positions are dense and in the order of commits,
                # and a reader that continues after a position misses nothing.
                f"CREATE TABLE trunkline_{name}_log (one integer PRIMARY KEY CHECK (one = 1), "
                "log_id text NOT NULL DEFAULT gen_random_uuid()::text, position bigint NOT NULL, "
                "size_bytes bigint NOT NULL) WITH (fillfactor = 10)",
                f"INSERT INTO trunkline_{name}_log (one, position, size_bytes) VALUES (1, 0, 0)",  # noqa: S608
                # writer, number: the entry of a process, so that a repeated append stores it once
                f"CREATE TABLE trunkline_{name} (position bigint PRIMARY KEY, "
                "writer text NOT NULL, number bigint NOT NULL, "
                "written timestamptz NOT NULL DEFAULT now(), body bytea NOT NULL, "
                "UNIQUE (writer, number))",
            ]
        ],
    )


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
        self._deleted_at = -math.inf
        self._statements = _Statements.build(schema.part)

    @property
    def place(self) -> str:
        """The table and the database, for people."""
        return f"table trunkline_{self._schema.part} of {self._database.name}"

    async def append(self, bodies: Sequence[bytes]) -> None:
        """Append entries, all or none.

        Old entries are deleted once a minute, and when the log is too large. After an error, the
        same entries must be appended again before any others. They are stored once.
        """
        await self._database.prepare(self._schema)
        size = sum(map(len, bodies))
        async with self._database.transaction() as connection:
            # The look-up after the lock sees what an earlier try has stored.
            total = await connection.fetchval(self._statements.lock)
            if not await connection.fetchval(
                self._statements.has_stored, self.writer, self._number
            ):
                await connection.execute(
                    self._statements.append, self.writer, self._number, list(bodies), size
                )
                total += size
        self._number += len(bodies)
        is_due = time.monotonic() - self._deleted_at >= _DELETION_INTERVAL_S
        if is_due or total > self._limits[0]:
            self._deleted_at = time.monotonic()
            await self._delete_old()

    async def _delete_old(self) -> None:
        """Delete entries that are too old, and the oldest until the log is not too large."""
        for _ in range(_DELETIONS):
            async with self._database.transaction() as connection:
                await connection.fetchval(self._statements.lock)
                deleted = await connection.fetchval(
                    self._statements.delete_old, *self._limits, _DELETED
                )
            if deleted < _DELETED:
                return

    async def read(self, after: int, *, limit: int) -> list[LogEntry]:
        """Return the entries after a position, the oldest first."""
        return _read(await self._fetch(self._statements.read, after, limit))

    async def read_backwards(self, before: int | None, *, limit: int) -> list[LogEntry]:
        """Return the entries before a position, or the last ones, the newest first."""
        first = _LAST_POSITION if before is None else min(before, _LAST_POSITION)
        return _read(await self._fetch(self._statements.read_backwards, first, limit))

    async def read_id(self) -> str:
        """Return the random name of the log. Positions of another log have no meaning in it."""
        rows = await self._fetch(self._statements.read_id)
        return str(rows[0]["log_id"])

    async def _fetch(self, query: str, *values: object) -> "list[asyncpg.Record]":
        await self._database.prepare(self._schema)
        return await self._database.fetch(query, *values)


class _Statements(NamedTuple):
    """The statements of a log."""

    lock: str
    has_stored: str
    append: str
    delete_old: str
    read: str
    read_backwards: str
    read_id: str

    @classmethod
    def build(cls, name: str) -> "_Statements":
        """Return the statements for a name, which is one of our constants."""
        entries, log = f"trunkline_{name}", f"trunkline_{name}_log"
        return cls(
            f"SELECT size_bytes FROM {log} FOR UPDATE",  # noqa: S608
            f"SELECT 1 FROM {entries} WHERE writer = $1 AND number > $2 LIMIT 1",  # noqa: S608
            f"WITH log AS (UPDATE {log} SET position = position + cardinality($3::bytea[]), "  # noqa: S608
            "size_bytes = size_bytes + $4 RETURNING position) "
            f"INSERT INTO {entries} (position, writer, number, body) "
            "SELECT log.position - cardinality($3) + n, $1, $2 + n, body "
            "FROM log, unnest($3) WITH ORDINALITY AS bodies (body, n)",
            # An entry goes if the log with it and all later ones is too large. The last one stays.
            "WITH oldest AS (SELECT position, written, octet_length(body) AS bytes "  # noqa: S608
            f"FROM {entries} ORDER BY position LIMIT $3), "
            "old AS (SELECT position, written, bytes, sum(bytes) OVER (ORDER BY position) - bytes "
            "AS earlier FROM oldest), "
            f"gone AS (DELETE FROM {entries} AS entry USING old, {log} AS head "
            "WHERE entry.position = old.position "
            "AND (old.written < now() - make_interval(secs => $2) "
            "OR (head.size_bytes - old.earlier > $1 AND old.position < head.position)) "
            "RETURNING old.bytes), "
            f"counted AS (UPDATE {log} AS head SET size_bytes = head.size_bytes "
            "- coalesce((SELECT sum(bytes) FROM gone), 0)) SELECT count(*) FROM gone",
            f"SELECT position, writer, body FROM {entries} WHERE position > $1 "  # noqa: S608
            "ORDER BY position LIMIT $2",
            f"SELECT position, writer, body FROM {entries} WHERE position < $1 "  # noqa: S608
            "ORDER BY position DESC LIMIT $2",
            f"SELECT log_id FROM {log}",  # noqa: S608
        )


def _read(rows: "Sequence[asyncpg.Record]") -> list[LogEntry]:
    return [LogEntry(row["position"], row["writer"], row["body"]) for row in rows]
